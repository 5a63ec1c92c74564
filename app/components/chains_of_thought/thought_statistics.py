"""What is computed about chains of thought from plain rows: rule tables, AUC, calibration, the table of the paper.

Nothing here reads the database or runs anything; `app.queries` gives the rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from db.rows.judging import LabelledVoteRow
from jobs.analysis.case_text import cases_as_json, cases_as_markdown
from jobs.analysis.code_detection import RuleTable, tabulate_counts
from jobs.analysis.validity import ReadAnswer, ValidityLine, read_wrong_answers, tabulate_validity
from jobs.grading.code_rules import rules_to_bits
from jobs.judging import calibration
from jobs.judging.calibration import Calibration, CorrectedRate, cohen_kappa, correct_rate
from jobs.judging.verdicts import JudgePrompt, load_judge_prompt
from jobs.studies.definition import load_study, number_of

__all__ = [
    "Calibration", "CorrectedRate", "JudgePrompt", "PaperCodeLine", "ReadAnswer", "RuleTable", "ValidityLine",
    "calibrate", "cases_as_json", "cases_as_markdown", "cohen_kappa", "correct_rate", "load_judge_prompt",
    "paper_code_lines", "read_wrong_answers", "rules_to_bits", "tabulate_counts", "tabulate_validity",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class PaperCodeLine:
    """One row of the paper's code table as it is printed; entropies in nats, the rest in percent."""

    group: str
    entropy_without: float | None
    entropy_with: float | None
    correctness_without: float | None
    correctness_with: float | None
    difference: float | None


def paper_code_lines() -> list[PaperCodeLine]:
    """Return the rows of the paper's code table (tab:code_analysis)."""
    [table] = load_study("code-analysis").tables
    return [PaperCodeLine(row.row.lower(), *map(number_of, row.values)) for row in table.rows]


def calibrate(votes: Sequence[LabelledVoteRow]) -> Calibration | None:
    """Return a judge's error rates on labelled items; None without any."""
    if not votes:
        return None
    return calibration.calibrate(calibration.group_votes((row.item_id, row.label, row.outcome) for row in votes))
