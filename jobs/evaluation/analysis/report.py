"""The paper's statistics of chains of thought, for one run, those of code in them, and the summary of a judge's job."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from exgrpo.db.connections.session import Database
from exgrpo.db.queries.cases import find_cases
from exgrpo.db.queries.code_analysis import Spreading, code_lines, entropy_points, share_timeline
from exgrpo.db.queries.judging import calibration_votes, count_issues, count_reasons, labelled_votes, list_judges
from exgrpo.db.rows.chains_of_thought import ALL, CodeLine, Difficulty, EntropyPoint, RuleCount, ShareLine, SnowballCase
from exgrpo.db.rows.judging import JudgeRow
from exgrpo.db.statistics import MeanInterval, mean_interval
from exgrpo.jobs.evaluation.judging.calibration import Calibration, CorrectedRate, calibrate, correct_rate, group_votes
from exgrpo.jobs.runs.control import TrainingError
from exgrpo.jobs.tasks.grading.code_rules import CODE_RULES, bits_to_rules

_SIGNALS = {"entropy": "mean_entropy", "perplexity": "perplexity"}
"""The field of a point that each signal is."""


@dataclass(frozen=True, slots=True)
class ValidityLine:
    """Valid against invalid trajectories of one group.

    An `auc` is the chance that an invalid trajectory scores higher than a valid one: 0.5 is no signal, 1 a perfect one.
    """

    group: str
    num_valid: int
    num_invalid: int
    entropy_valid: float
    entropy_invalid: float
    entropy_auc: float
    perplexity_valid: float
    perplexity_invalid: float
    perplexity_auc: float
    half_intervals: dict[str, float]
    """Half of the 95% interval of each mean by its field, NaN of fewer than two trajectories."""


def tabulate_validity(rows: Sequence[EntropyPoint]) -> list[ValidityLine]:
    """Return entropy and perplexity of valid and invalid answer-correct trajectories, by difficulty and over all."""
    groups = [(level.value, [row for row in rows if row.difficulty is level]) for level in Difficulty]
    return [_validity_line(group, members) for group, members in (*groups, (ALL, rows))]


def _validity_line(group: str, rows: Sequence[EntropyPoint]) -> ValidityLine:
    valid = [row for row in rows if row.is_valid is True]
    invalid = [row for row in rows if row.is_valid is False]
    parts = {"valid": valid, "invalid": invalid}
    values = {
        f"{name}_{end}": [float(getattr(row, field)) for row in part]
        for name, field in _SIGNALS.items()
        for end, part in parts.items()
    }
    means = {name: mean_interval(of) if of else MeanInterval(math.nan, math.nan, ()) for name, of in values.items()}
    return ValidityLine(
        group=group,
        num_valid=len(valid),
        num_invalid=len(invalid),
        entropy_valid=means["entropy_valid"].mean,
        entropy_invalid=means["entropy_invalid"].mean,
        entropy_auc=area_under_curve(values["entropy_invalid"], values["entropy_valid"]),
        perplexity_valid=means["perplexity_valid"].mean,
        perplexity_invalid=means["perplexity_invalid"].mean,
        perplexity_auc=area_under_curve(values["perplexity_invalid"], values["perplexity_valid"]),
        half_intervals={name: interval.half for name, interval in means.items()},
    )


def area_under_curve(positives: Sequence[float], negatives: Sequence[float]) -> float:
    """Return the chance that a positive's score is above a negative's, ties counted half; NaN without both."""
    if not len(positives) or not len(negatives):
        return float("nan")
    below = np.sort(np.asarray(negatives, dtype=np.float64))
    scores = np.asarray(positives, dtype=np.float64)
    num_less = np.searchsorted(below, scores, side="left")
    num_less_or_equal = np.searchsorted(below, scores, side="right")
    return float((num_less + num_less_or_equal).mean() / (2 * below.size))


NUM_CASES = 3
ORACLE = "oracle"
_ALL_POINTS = 10_000_000
_COUNTS = ("num_responses", "num_valid", "num_invalid", "num_unjudged", "num_votes", "num_tokens")


@dataclass(frozen=True, slots=True)
class CorrectedLine:
    """The CoT correctness of a line of the code table, corrected for the judge's errors."""

    group: str
    has_code: bool
    rate: CorrectedRate


@dataclass(frozen=True, slots=True)
class RunAnalysis:
    """One run. `judge` gave the verdicts; a calibrated judge also has `calibration` and `corrected`."""

    run_id: str
    judge: str
    code: tuple[CodeLine, ...]
    validity: tuple[ValidityLine, ...]
    code_shares: tuple[ShareLine, ...]
    invalid_shares: tuple[ShareLine, ...]
    cases: tuple[SnowballCase, ...]
    calibration: Calibration | None
    corrected: tuple[CorrectedLine, ...]


def analyse_run(database: Database, run_id: str, judge_run_id: str | None = None) -> RunAnalysis:
    """Return entropy and validity with and without code, their AUC, code's spread over the run, and cases.

    Verdicts are those of a judge's job or, without one, of the task's oracle. `invalid_shares` are over trajectories
    with a verdict. A judge's rates are corrected by the newest calibration of the same judge with the same prompt.

    Raises:
        UnknownRunError: There is no such run.
        TrainingError: The judge has not voted on this run.
    """
    judge = _find_judge(database, run_id, judge_run_id)
    code = tuple(code_lines(database, run_id, judge_run_id))
    points = entropy_points(database, run_id, judge_run_id, max_points=_ALL_POINTS).points
    calibration = None if judge is None else find_calibration(database, judge.judge, judge.prompt)
    return RunAnalysis(
        run_id=run_id,
        judge=ORACLE if judge is None else judge.judge,
        code=code,
        validity=tuple(tabulate_validity(points)),
        code_shares=tuple(share_timeline(database, run_id, Spreading.CODE)),
        invalid_shares=tuple(share_timeline(database, run_id, Spreading.INVALID, judge_run_id)),
        cases=tuple(find_cases(database, run_id, judge_run_id, limit=NUM_CASES)),
        calibration=calibration,
        corrected=() if calibration is None else tuple(_corrected(line, calibration) for line in code),
    )


def read_calibration(database: Database, judge_run_id: str) -> Calibration | None:
    """Return the calibration of a judge's job on labelled items, None if it voted on none."""
    votes = labelled_votes(database, judge_run_id)
    return calibrate(group_votes(votes)) if votes else None


def find_calibration(database: Database, judge: str, prompt: str) -> Calibration | None:
    """Return the newest calibration of a judge with a prompt, None if there is none."""
    votes = calibration_votes(database, judge, prompt)
    return calibrate(group_votes(votes)) if votes else None


def _find_judge(database: Database, run_id: str, judge_run_id: str | None) -> JudgeRow | None:
    if judge_run_id is None:
        return None
    for row in list_judges(database, run_id):
        if row.judge_run_id == judge_run_id and row.num_votes:
            return row
    raise TrainingError(f"--judge {judge_run_id}: has no votes on {run_id}; `exgrpo judge` makes some.")


def _corrected(line: CodeLine, calibration: Calibration) -> CorrectedLine:
    rate = correct_rate(line.num_valid_by_judge, line.num_by_judge, calibration)
    return CorrectedLine(line.group, line.has_code, rate)


def summarize_judge(database: Database, judge_run_id: str) -> dict[str, Any]:
    """Return counts, reasons, issue classes, the job's calibration, and the corrected rate of valid chains."""
    row = next((row for row in list_judges(database) if row.judge_run_id == judge_run_id and row.num_votes), None)
    counts = dict.fromkeys(_COUNTS, 0) if row is None else {name: asdict(row)[name] for name in _COUNTS}
    measured = read_calibration(database, judge_run_id)
    calibration = None if row is None or measured else find_calibration(database, row.judge, row.prompt)
    num_judged = counts["num_valid"] + counts["num_invalid"]
    return {
        "run_id": judge_run_id,
        "source": row.source if row else None,
        "judge": row.judge if row else None,
        "prompt": row.prompt if row else None,
        **counts,
        "reasons": count_reasons(database, judge_run_id),
        "issues": count_issues(database, judge_run_id),
        "calibration": measured,
        "corrected": None if calibration is None else correct_rate(counts["num_valid"], num_judged, calibration),
    }


@dataclass(frozen=True, slots=True)
class RuleRate:
    """One line of the rule table. `rate` is the share of texts that match."""

    rule_id: str
    kind: str
    cue: str
    form: str
    num_texts: int
    rate: float


@dataclass(frozen=True, slots=True)
class RuleTable:
    """Rates of all rules on a set of texts; `any_rate` is that of texts that match at least one rule."""

    num_texts: int
    rules: tuple[RuleRate, ...]
    num_any: int
    any_rate: float
    num_python_blocks: int
    python_block_rate: float


def tabulate_counts(rows: Iterable[RuleCount], *, only_correct: bool = False) -> RuleTable:
    """Return how many trajectories, or only correct ones, match each rule, any rule, and the parser-based check."""
    counts: Counter[str] = Counter()
    num_texts = num_any = num_blocks = 0
    for row in rows:
        rule_ids = bits_to_rules(row.code_rules)
        count = row.num_correct if only_correct else row.num_trajectories
        num_texts += count
        num_any += count if rule_ids else 0
        num_blocks += count if row.has_python_block else 0
        counts.update(dict.fromkeys(rule_ids, count))

    def rate(count: int) -> float:
        return count / num_texts if num_texts else 0.0

    rules = tuple(
        RuleRate(rule.rule_id, rule.kind, rule.cue, rule.form, counts[rule.rule_id], rate(counts[rule.rule_id]))
        for rule in CODE_RULES
    )
    return RuleTable(num_texts, rules, num_any, rate(num_any), num_blocks, rate(num_blocks))
