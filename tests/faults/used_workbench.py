"""A workbench that was used: runs of every kind, ended in every way, and all that users can say of them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from db.case_rows import SavedCase
from db.mark_rows import MarkedTrajectory
from db.queries import code_analysis, metrics, runs
from db.queries.benchmarks import list_scores
from db.queries.cases import saved_cases
from db.queries.judge_work import get_verdicts
from db.queries.judging import list_votes
from db.queries.run_filter import RunFilter
from db.queries.trajectories import search
from db.queries.trajectory_marks import marked_trajectories
from db.session import Database
from db.verdict_rows import JudgedRow
from jobs import annotating, commands
from jobs.attempt_files import write_outcome
from jobs.eval_specs import BenchmarkChoice, EvalModelSpec, EvalSpec
from jobs.run_directory import RunDirectory
from jobs.specs import RecordingSpec, TrainSpec
from jobs.spool_recorder import SpoolRecorder
from jobs.status import RunStatus
from tests.db.recorded_runs import new_run, record_attempt
from tests.db.recorded_scores import event
from tests.db.table_contents import contents
from tests.jobs.judging.chain_runs import oracle_spec, record_chains, run_job
from tests.step_reports import make_questions

CASE = SavedCase("trained", 1, 0, 3)
_KEYS_PER_RUN = 2**44


def make(runs_root: Path, num_more: int) -> None:
    """Fill a runs root; `num_more` further runs carry a tag and a note each."""
    _record_runs(runs_root)
    for number in range(num_more):
        run = new_run(runs_root, run_id=f"run-{number:04d}")
        record_attempt(run, [1], end=RunStatus.SUCCEEDED)
        write_outcome(run.attempt_path(1), RunStatus.SUCCEEDED, "")
    _say_things(runs_root, num_more)


def _record_runs(runs_root: Path) -> None:
    resumed = new_run(runs_root, run_id="resumed")
    record_attempt(resumed, range(1, 9))
    record_attempt(resumed, range(6, 11), end=RunStatus.SUCCEEDED, seed=1)
    failed = new_run(runs_root, run_id="failed", parent_run_id="resumed", branched_from_step=4)
    record_attempt(failed, [5], end=RunStatus.FAILED)
    trained = record_chains(runs_root, [["valid", "lucky", "wrong", "code"]] * 3)
    judged = RunDirectory.create(runs_root, oracle_spec(), run_id="judged")
    run_job(judged)
    scored = _record_scores(runs_root)
    for run in (trained, judged, scored):
        write_outcome(run.attempt_path(1), RunStatus.SUCCEEDED, "")
    write_outcome(resumed.attempt_path(1), RunStatus.LOST, "Gone.")
    write_outcome(resumed.attempt_path(2), RunStatus.SUCCEEDED, "")
    write_outcome(failed.attempt_path(1), RunStatus.FAILED, "A reason \N{SNOWMAN}.")


def _record_scores(runs_root: Path) -> RunDirectory:
    spec = EvalSpec(model=EvalModelSpec(source="a-model"), benchmarks=(BenchmarkChoice(name="aime24"),))
    run = RunDirectory.create(runs_root, spec, run_id="scored")
    recorder = SpoolRecorder(run, run.claim_attempt(), RecordingSpec())
    recorder.status(RunStatus.RUNNING)
    recorder.questions(make_questions(), "training")
    recorder.record("benchmark", event([4, 0, 2], source_run_id="resumed", source_step=8))
    recorder.close()
    return run


def _say_things(runs_root: Path, num_more: int) -> None:
    commands.submit(runs_root, TrainSpec(name="in the queue", tags=("from its specification",)))
    for name in ("keep", "taken off", " a  b "):
        commands.tag(runs_root, "trained", name)
    commands.tag(runs_root, "trained", "taken off", is_set=False)
    commands.note(runs_root, "trained", "First.\nSecond line \u2028 <b>no</b> \u202e.")
    commands.note(runs_root, "trained", "Another.")
    commands.archive(runs_root, "failed")
    commands.archive(runs_root, "scored")
    commands.archive(runs_root, "scored", is_archived=False)
    annotating.mark_case(runs_root, "kept", CASE)
    annotating.mark_case(runs_root, "taken out", CASE)
    annotating.mark_case(runs_root, "taken out", CASE, is_kept=False)
    annotating.set_verdict(runs_root, "trained", 1, 1, True)
    annotating.set_verdict(runs_root, "trained", 1, 2, False)
    annotating.set_verdict(runs_root, "trained", 1, 0, False)
    annotating.set_verdict(runs_root, "trained", 1, 0, None)
    annotating.mark_trajectory(runs_root, MarkedTrajectory("trained", 1, 2, "odd", "first"))
    annotating.mark_trajectory(runs_root, MarkedTrajectory("trained", 1, 2, "odd", "the last word"))
    annotating.mark_trajectory(runs_root, MarkedTrajectory("trained", 1, 3, "odd"))
    annotating.mark_trajectory(runs_root, MarkedTrajectory("trained", 1, 3, "odd"), is_kept=False)
    for number in range(num_more):
        commands.tag(runs_root, f"run-{number:04d}", "one of many")
        commands.note(runs_root, f"run-{number:04d}", f"Note {number}.")


def tables(database: Database) -> dict[str, list[tuple[Any, ...]]]:
    """Return all rows of all tables with runs by their ids, since their numbers follow the order of taking in."""
    found = contents(database)
    run_ids = {row[0]: row[1] for row in found["runs"]}
    return {name: sorted((_named(name, row, run_ids) for row in rows), key=repr) for name, rows in found.items()}


def _named(table: str, row: tuple[Any, ...], run_ids: dict[int, str]) -> tuple[Any, ...]:
    if table == "ingest_positions":
        return row
    if table in ("trajectories", "trajectory_texts"):
        facets = () if table == "trajectories" else row[3:]
        return (run_ids[row[1]], row[0] % _KEYS_PER_RUN, *(facets or row[2:]))
    return (run_ids[row[0]], *row[1:])


def _without_number(row: JudgedRow | None) -> JudgedRow | None:
    return row and replace(row, trajectory_key=0)


def answers(database: Database) -> dict[str, Any]:
    """Return what pages read of the users' words, of judges, scores, curves and lists."""
    every = runs.list_runs(database, RunFilter(is_archived=None), limit=None)
    return {
        "runs": every,
        "shown": {row.run_id for row in runs.list_runs(database)},
        "notes": {row.run_id: runs.list_notes(database, row.run_id) for row in every},
        "curve": metrics.metric_series(database, "resumed", ["reward/mean"]),
        "cases": saved_cases(database, "kept"),
        "verdicts": [_without_number(get_verdicts(database, "trained", number)) for number in range(12)],
        "marks": marked_trajectories(database, "odd"),
        "votes": [list_votes(database, "trained", number) for number in range(12)],
        "scores": list_scores(database),
        "code": code_analysis.code_lines(database, "trained", "judged"),
        "found": {(hit.run_id, hit.trajectory_id) for hit in search(database, "trajectory", limit=1000)},
    }
