"""From the database's rows to what the statistics ask for."""

from collections import Counter
from collections.abc import Iterable, Mapping

from db.judge_rows import AnalysisRow
from db.queries.buffer import buffer_changes
from db.queries.judging import analysis_rows, replayed_trajectories, verdicts_of
from db.session import Database
from jobs.analysis.code_rules import find_rules
from jobs.analysis.facts import TrajectoryFacts
from jobs.analysis.snowball import TimelineStep
from jobs.judging.calibration import LabelledVotes

_FAR_STEP = 2**31 - 1


def read_facts(database: Database, run_id: str, judge_run_id: str | None = None) -> list[TrajectoryFacts]:
    """Return every fresh trajectory of a run with its verdict: a judge's, or without one what the task's oracle said.

    Where the task does not tell whether a response has code, the rules do.
    """
    verdicts: Mapping[tuple[int, int], bool | None] | None = None
    if judge_run_id is not None:
        verdicts = {(row.attempt, row.trajectory_id): row.is_valid for row in verdicts_of(database, judge_run_id)}
    rows = list(analysis_rows(database, run_id))
    marks = _marks(database, run_id, rows)
    counts = Counter((row.step, row.group_position) for row in rows)
    correct = Counter((row.step, row.group_position) for row in rows if row.reward >= 1.0)
    return [
        TrajectoryFacts(
            trajectory_id=row.trajectory_id,
            step=row.step,
            question_index=row.question_index,
            is_correct=row.reward >= 1.0,
            correctness_rate=correct[row.step, row.group_position] / counts[row.step, row.group_position],
            is_valid=row.is_valid if verdicts is None else verdicts.get((row.attempt, row.trajectory_id)),
            has_code=marks[row.trajectory_id],
            mean_entropy=row.mean_entropy,
            mean_log_prob=row.mean_log_prob,
        )
        for row in rows
    ]


def read_timeline(database: Database, run_id: str, facts: Iterable[TrajectoryFacts]) -> list[TimelineStep]:
    """Return what each step did to rollouts, buffer and replays."""
    fresh: dict[int, list[TrajectoryFacts]] = {}
    for fact in facts:
        fresh.setdefault(fact.step, []).append(fact)
    replayed: dict[int, list[int]] = {}
    for step, trajectory_id in replayed_trajectories(database, run_id):
        replayed.setdefault(step, []).append(trajectory_id)
    inserted: dict[int, list[tuple[int, int]]] = {}
    retired: dict[int, list[int]] = {}
    for change in buffer_changes(database, run_id, 0, _FAR_STEP):
        if change.kind == "inserted" and change.trajectory_id is not None:
            inserted.setdefault(change.step, []).append((change.question_index, change.trajectory_id))
        elif change.kind == "retired":
            retired.setdefault(change.step, []).append(change.question_index)
    return [
        TimelineStep(
            step=step,
            fresh=[fact.trajectory_id for fact in fresh.get(step, ())],
            correct=[fact.trajectory_id for fact in fresh.get(step, ()) if fact.is_correct],
            replayed=replayed.get(step, ()),
            inserted=inserted.get(step, ()),
            retired=retired.get(step, ()),
        )
        for step in sorted({*fresh, *replayed, *inserted, *retired})
    ]


def group_votes(votes: Iterable[tuple[str, bool, str]]) -> list[LabelledVotes]:
    """Return votes on labelled items, (item, label, outcome) each, item by item."""
    labels: dict[str, bool] = {}
    outcomes: dict[str, list[str]] = {}
    for item_id, label, outcome in votes:
        labels[item_id] = label
        outcomes.setdefault(item_id, []).append(outcome)
    return [LabelledVotes(labels[item_id], tuple(found)) for item_id, found in outcomes.items()]


def _marks(database: Database, run_id: str, rows: list[AnalysisRow]) -> dict[int, bool]:
    known = {row.trajectory_id: row.has_code for row in rows if row.has_code is not None}
    if len(known) == len(rows):
        return known
    texts = analysis_rows(database, run_id, includes_text=True)
    found = {row.trajectory_id: bool(find_rules(row.text or "")) for row in texts if row.trajectory_id not in known}
    return known | found
