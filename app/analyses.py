"""What pages read of `jobs`: the paper's numbers, its studies, and analyses of chains of thought."""

from collections.abc import Sequence

from db.rows.judging import LabelledVoteRow
from db.statistics import MeanInterval, mean_interval
from jobs.analysis.case_text import Excerpt, as_latex, as_markdown, cases_as_json, excerpts_of
from jobs.analysis.code_detection import RuleTable, tabulate_counts
from jobs.analysis.validity import ReadAnswer, ValidityLine, read_wrong_answers, tabulate_validity
from jobs.evaluation.protocols import load_protocols
from jobs.judging import calibration
from jobs.judging.calibration import Calibration, CorrectedRate, cohen_kappa, correct_rate
from jobs.judging.verdicts import JudgePrompt, load_judge_prompt
from jobs.studies.comparison import (
    ComparedRow,
    compare,
    coverage,
    differences_sentence,
    interval_text,
    is_by_column,
    reading,
)
from jobs.studies.definition import PaperTable, Scale, Study, load_study, number_of, study_names
from jobs.studies.matrix import RunKey, wanted_keys
from jobs.studies.measures import AVERAGES, BENCHMARK_COLUMNS
from jobs.studies.numbers import disagreements, number_rows, printed, setting_gains
from jobs.studies.running import PendingRun, estimate_hours
from jobs.studies.study_report import render_report
from jobs.studies.study_results import StudyResults, find_runs, read_results
from jobs.studies.sweeps import find_study, read_sweeps

__all__ = [
    "AVERAGES", "BENCHMARK_COLUMNS", "Calibration", "ComparedRow", "CorrectedRate", "Excerpt", "JudgePrompt",
    "MeanInterval", "PaperTable", "PendingRun", "ReadAnswer", "RuleTable", "RunKey", "Scale", "Study",
    "StudyResults", "ValidityLine", "as_latex", "as_markdown", "cases_as_json", "cohen_kappa",
    "compare", "correct_rate", "coverage", "differences_sentence", "disagreements", "estimate_hours", "excerpts_of",
    "find_runs", "find_study", "interval_text", "is_by_column", "load_judge_prompt", "load_protocols", "load_study",
    "mean_interval", "number_of", "number_rows", "printed", "read_results", "read_sweeps", "read_wrong_answers",
    "reading", "render_report", "setting_gains", "study_names", "tabulate_counts", "tabulate_validity",
    "wanted_keys",
]  # fmt: skip


def calibrate(votes: Sequence[LabelledVoteRow]) -> Calibration | None:
    """Return a judge's error rates on labelled items; None without any."""
    if not votes:
        return None
    return calibration.calibrate(calibration.group_votes((row.item_id, row.label, row.outcome) for row in votes))
