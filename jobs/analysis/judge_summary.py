"""Summary of a judge's job for the command line."""

from dataclasses import asdict
from typing import Any

from db.connections.session import Database
from db.queries.judging import count_issues, count_reasons, list_judges
from jobs.analysis.report import find_calibration, read_calibration
from jobs.judging.calibration import correct_rate

_COUNTS = ("num_responses", "num_valid", "num_invalid", "num_unjudged", "num_votes", "num_tokens")


def summarize_judge(database: Database, judge_run_id: str) -> dict[str, Any]:
    """Return counts, reasons, issue classes, the job's calibration, and the corrected rate of valid chains."""
    row = next((row for row in list_judges(database) if row.judge_run_id == judge_run_id), None)
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
