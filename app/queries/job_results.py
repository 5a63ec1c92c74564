"""What came out of jobs other than training: scores of an evaluation, verdicts of a judge."""

from app.queries.answers import ask
from db.connections.session import Database
from db.queries import benchmarks, judging
from db.rows.judging import JudgeRow
from db.rows.scores import BenchmarkScoreRow


def evaluation_scores(run_id: str) -> list[BenchmarkScoreRow]:
    """Return the scores that an evaluation has so far, each benchmark by every scheme."""
    return ask(_scores, run_id)


def judge_results(judge_run_id: str) -> list[JudgeRow]:
    """Return what a judge's votes amount to, none before the first vote."""
    return [row for row in ask(judging.list_judges) if row.judge_run_id == judge_run_id]


def unjudged_reasons(judge_run_id: str) -> dict[str, int]:
    """Return how many of a judge's votes gave no verdict, by reason."""
    return ask(judging.count_reasons, judge_run_id)


def _scores(database: Database, run_id: str) -> list[BenchmarkScoreRow]:
    return benchmarks.list_scores(database, run_id=run_id)
