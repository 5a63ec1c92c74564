"""Judges: their jobs and votes, what they agree on, and trajectories beside their verdicts."""

from app.queries.answers import ask
from db.connections.session import Database
from db.queries import judge_work, judging
from db.rows.analysis import AgreementRow
from db.rows.judging import JudgeRow, LabelledVoteRow, VoteRow
from db.rows.verdicts import JudgedRow, JudgeJobRow, VerdictFilter

VERDICTS_PAGE_SIZE = 50


def list_judge_jobs(source: str | None = None) -> list[JudgeJobRow]:
    """Return judges' jobs on a run, or all, newest first."""
    return ask(judge_work.list_judge_jobs, source)


def list_judges() -> list[JudgeRow]:
    """Return how every judge's votes came out, by judge, prompt and what it voted on."""
    return ask(judging.list_judges)


def calibration_votes(judge: str, prompt: str) -> list[LabelledVoteRow]:
    """Return the votes of the newest calibration of a judge with a prompt."""
    return ask(judge_work.calibration_votes, judge, prompt)


def count_verdicts(run_id: str, judge_run_id: str | None) -> dict[VerdictFilter, int]:
    """Return how many answer-correct trajectories each filter lists, exact up to 10,000."""
    return ask(judge_work.count_verdicts, run_id, judge_run_id)


def list_verdicts(run_id: str, judge_run_id: str | None, which: VerdictFilter, num_pages: int = 1) -> list[JudgedRow]:
    """Return the first pages of answer-correct trajectories with their verdicts, newest first."""
    found: list[JudgedRow] = []
    for _ in range(num_pages):
        page = ask(_page, run_id, judge_run_id, which, found[-1].trajectory_key if found else None)
        found += page
        if len(page) < VERDICTS_PAGE_SIZE:
            break
    return found


def get_verdicts(run_id: str, trajectory_id: int, judge_run_id: str | None) -> JudgedRow | None:
    """Return one trajectory with its verdicts, or None if there is none of this id."""
    return ask(judge_work.get_verdicts, run_id, trajectory_id, judge_run_id)


def list_votes(run_id: str, trajectory_id: int) -> list[VoteRow]:
    """Return every vote of every judge on a trajectory."""
    return ask(judging.list_votes, run_id, trajectory_id)


def agreement(run_id: str, judge_run_id: str | None) -> list[AgreementRow]:
    """Return how a judge agrees with the oracle and with users."""
    return ask(judge_work.agreement, run_id, judge_run_id)


def count_issues(judge_run_id: str) -> dict[str, int]:
    """Return how many of a judge's votes name each class of issue."""
    return ask(judging.count_issues, judge_run_id)


def count_reasons(judge_run_id: str) -> dict[str, int]:
    """Return how many of a judge's votes are unjudged, by reason."""
    return ask(judging.count_reasons, judge_run_id)


def _page(
    database: Database, run_id: str, judge_run_id: str | None, which: VerdictFilter, before: int | None
) -> list[JudgedRow]:
    return judge_work.list_verdicts(database, run_id, judge_run_id, which, before=before, limit=VERDICTS_PAGE_SIZE)
