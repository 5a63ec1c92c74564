"""The paper's numbers and its studies: a page's second way to `jobs`, which only reads."""

from db.statistics.intervals import MeanInterval, interval_text, mean_interval
from jobs.evaluation.protocols import load_protocols
from jobs.studies.comparison import ComparedRow, compare, coverage, differences_sentence, is_by_column, reading
from jobs.studies.definition import PaperTable, Scale, Study, load_study, number_of, study_names
from jobs.studies.matrix import RunKey, wanted_keys
from jobs.studies.measures import AVERAGES, BENCHMARK_COLUMNS
from jobs.studies.numbers import disagreements, number_rows, printed, setting_gains
from jobs.studies.running import PendingRun, estimate_hours
from jobs.studies.study_report import render_report
from jobs.studies.study_results import StudyResults, find_runs, read_results

__all__ = [
    "AVERAGES", "BENCHMARK_COLUMNS", "ComparedRow", "MeanInterval", "PaperTable", "PendingRun", "RunKey", "Scale",
    "Study", "StudyResults", "compare", "coverage", "differences_sentence", "disagreements", "estimate_hours",
    "find_runs", "interval_text", "is_by_column", "load_protocols", "load_study", "mean_interval", "number_of",
    "number_rows", "printed", "read_results", "reading", "render_report", "setting_gains", "study_names",
    "wanted_keys",
]  # fmt: skip
