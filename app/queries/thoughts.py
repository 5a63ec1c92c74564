"""Chains of thought: code in them, entropy against validity, how both spread, and snowball cases."""

from app.queries.answers import ask
from db.connections.session import Database
from db.queries import cases, code_analysis, share_timeline
from db.queries.share_timeline import Mark
from db.rows.analysis import CodeLine, EntropyPoints, RuleCount, RuleHit, ShareLine
from db.rows.cases import CaseSetRow, SavedCase, SnowballCase

HITS_PAGE_SIZE = 50


def code_lines(run_id: str, judge_run_id: str | None) -> list[CodeLine]:
    """Return the paper's code table of a run."""
    return ask(code_analysis.code_lines, run_id, judge_run_id)


def rule_counts(run_id: str) -> list[RuleCount]:
    """Return how many trajectories of a run fit which rules."""
    return ask(code_analysis.rule_counts, run_id)


def rule_hits(run_id: str, rule_bit: int | None) -> list[RuleHit]:
    """Return the newest trajectories that fit a rule, or without a bit those with a Python block."""
    return ask(_rule_hits, run_id, rule_bit)


def entropy_points(run_id: str, judge_run_id: str | None) -> EntropyPoints:
    """Return the answer-correct trajectories of a run with entropy, perplexity and verdict."""
    return ask(code_analysis.entropy_points, run_id, judge_run_id)


def code_shares(run_id: str) -> list[ShareLine]:
    """Return the share of trajectories with code, step by step."""
    return ask(share_timeline.share_timeline, run_id, Mark.CODE)


def invalid_shares(run_id: str, judge_run_id: str | None) -> list[ShareLine]:
    """Return the share of invalid chains of thought among those with a verdict, step by step."""
    return ask(share_timeline.share_timeline, run_id, Mark.INVALID, judge_run_id)


def find_cases(run_id: str, judge_run_id: str | None, limit: int, *, only_telling: bool) -> list[SnowballCase]:
    """Return the most telling cases of a run."""
    return ask(_find_cases, run_id, judge_run_id, limit, only_telling)


def list_case_sets() -> list[CaseSetRow]:
    """Return every set of saved cases."""
    return ask(cases.list_case_sets)


def sets_of_run(run_id: str) -> dict[SavedCase, tuple[str, ...]]:
    """Return the sets that each saved case of a run is in."""
    return ask(cases.sets_of_run, run_id)


def saved_cases(case_set: str) -> list[SnowballCase]:
    """Return the cases of a set."""
    return ask(cases.saved_cases, case_set)


def _rule_hits(database: Database, run_id: str, rule_bit: int | None) -> list[RuleHit]:
    return code_analysis.list_rule_hits(database, run_id, rule_bit, limit=HITS_PAGE_SIZE)


def _find_cases(
    database: Database, run_id: str, judge_run_id: str | None, limit: int, only_telling: bool
) -> list[SnowballCase]:
    return cases.find_cases(database, run_id, judge_run_id, limit=limit, only_telling=only_telling)
