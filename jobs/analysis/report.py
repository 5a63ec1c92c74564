"""Everything that the paper shows of a run's chains of thought, for one run of one's own."""

import math
from dataclasses import dataclass

from db.judge_rows import JudgeRow
from db.queries.judging import labelled_votes, list_judges, question_texts, trajectory_texts
from db.session import Database
from jobs.analysis.cases import SnowballCase, choose_cases, lay_out_case
from jobs.analysis.facts import TrajectoryFacts
from jobs.analysis.reading import group_votes, read_facts, read_timeline
from jobs.analysis.snowball import ShareLine, share_timeline
from jobs.analysis.validity import CodeLine, ValidityLine, tabulate_code, tabulate_validity
from jobs.control import TrainingError
from jobs.judging.calibration import Calibration, CorrectedRate, calibrate, correct_rate

DEFAULT_NUM_CASES = 3
ORACLE = "oracle"


@dataclass(frozen=True, slots=True)
class CorrectedLine:
    """The CoT correctness of a line of the code table, corrected for the judge's errors."""

    group: str
    has_code: bool
    rate: CorrectedRate


@dataclass(frozen=True, slots=True)
class RunAnalysis:
    """One run. `judge` is whose verdicts these are; `calibration` and `corrected` are there for a calibrated one."""

    run_id: str
    judge: str
    code: tuple[CodeLine, ...]
    validity: tuple[ValidityLine, ...]
    code_shares: tuple[ShareLine, ...]
    invalid_shares: tuple[ShareLine, ...]
    cases: tuple[SnowballCase, ...]
    calibration: Calibration | None
    corrected: tuple[CorrectedLine, ...]


def analyse_run(
    database: Database, run_id: str, judge_run_id: str | None = None, num_cases: int = DEFAULT_NUM_CASES
) -> RunAnalysis:
    """Return all statistics of a run, with the verdicts of a judge's job or, without one, of the task's oracle.

    `invalid_shares` are over trajectories with a verdict. A judge's rates are corrected by the newest calibration of
    the same judge with the same prompt.

    Raises:
        UnknownRunError: There is no such run.
        TrainingError: The judge has not voted on this run.
    """
    judge = _find_judge(database, run_id, judge_run_id)
    facts = read_facts(database, run_id, judge_run_id)
    timeline = read_timeline(database, run_id, facts)
    code = tuple(tabulate_code(facts))
    calibration = None if judge is None else find_calibration(database, judge.judge, judge.prompt)
    return RunAnalysis(
        run_id=run_id,
        judge=ORACLE if judge is None else judge.judge,
        code=code,
        validity=tuple(tabulate_validity(facts)),
        code_shares=tuple(share_timeline(timeline, {fact.trajectory_id: fact.has_code for fact in facts})),
        invalid_shares=tuple(share_timeline(timeline, _invalid_marks(facts))),
        cases=tuple(_cases(database, run_id, facts, num_cases)),
        calibration=calibration,
        corrected=() if calibration is None else tuple(_corrected(line, calibration) for line in code),
    )


def read_calibration(database: Database, judge_run_id: str) -> Calibration | None:
    """Return how a judge's job did on labelled items, None if it voted on none."""
    votes = [(row.item_id, row.label, row.outcome) for row in labelled_votes(database, judge_run_id)]
    return calibrate(group_votes(votes)) if votes else None


def find_calibration(database: Database, judge: str, prompt: str) -> Calibration | None:
    """Return the newest calibration of a judge with a prompt, None if there is none."""
    for row in list_judges(database):
        if (row.judge, row.prompt) == (judge, prompt):
            found = read_calibration(database, row.judge_run_id)
            if found is not None:
                return found
    return None


def _find_judge(database: Database, run_id: str, judge_run_id: str | None) -> JudgeRow | None:
    if judge_run_id is None:
        return None
    for row in list_judges(database, run_id):
        if row.judge_run_id == judge_run_id:
            return row
    raise TrainingError(f"--judge {judge_run_id}: has no votes on {run_id}; `exgrpo judge` asks for them.")


def _invalid_marks(facts: list[TrajectoryFacts]) -> dict[int, bool]:
    return {fact.trajectory_id: not fact.is_valid for fact in facts if fact.is_valid is not None}


def _corrected(line: CodeLine, calibration: Calibration) -> CorrectedLine:
    share = 0.0 if math.isnan(line.cot_correctness) else line.cot_correctness
    num_valid = round(share * line.num_judged)
    return CorrectedLine(line.group, line.has_code, correct_rate(num_valid, line.num_judged, calibration))


def _cases(database: Database, run_id: str, facts: list[TrajectoryFacts], num_cases: int) -> list[SnowballCase]:
    choices = choose_cases(facts, num_cases)
    ids = [row.trajectory_id for choice in choices for row in (choice.low, choice.high)]
    texts = trajectory_texts(database, run_id, ids)
    questions = question_texts(database, run_id, [choice.low.question_index for choice in choices])
    return [lay_out_case(choice, texts, *questions[choice.low.question_index]) for choice in choices]
