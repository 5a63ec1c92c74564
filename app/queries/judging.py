"""Trajectories beside their verdicts, and the results of a judge."""

from app.queries.answers import ask, ask_pages
from db.queries import judge_work, judging
from db.rows.judging import JudgeRow
from db.rows.verdicts import JudgedRow, VerdictFilter

VERDICTS_PAGE_SIZE = 50


def list_verdicts(run_id: str, judge_run_id: str | None, which: VerdictFilter, num_pages: int = 1) -> list[JudgedRow]:
    """Return the first pages of answer-correct trajectories with their verdicts, newest first."""
    return ask_pages(
        lambda last: ask(
            judge_work.list_verdicts,
            run_id,
            judge_run_id,
            which,
            before=last.trajectory_key if last else None,
            limit=VERDICTS_PAGE_SIZE,
        ),
        VERDICTS_PAGE_SIZE,
        num_pages,
    )


def list_judge_results(judge_run_id: str) -> list[JudgeRow]:
    """Return the counts of a judge's votes, none before the first vote."""
    return [row for row in ask(judging.list_judges) if row.judge_run_id == judge_run_id]
