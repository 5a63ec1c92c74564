"""Plain rows of judges at work: their jobs, and the trajectories that have, lack or dispute a verdict."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class JudgeJobRow:
    """One judge's job on a training run or a labelled file, with what it has spent and may spend.

    Votes, tokens and requests are those recorded so far; `max_requests` and `max_total_tokens` are its spend cap.
    """

    judge_run_id: str
    name: str
    status: str
    status_reason: str
    created_at: datetime
    source: str
    judge: str
    prompt: str
    num_votes_each: int
    num_votes: int
    num_unjudged_votes: int
    num_responses: int
    num_requests: int
    num_tokens: int
    max_requests: int | None
    max_total_tokens: int | None


class VerdictFilter(StrEnum):
    """Which answer-correct trajectories to list."""

    ALL = "all"
    JUDGED = "judged"
    UNJUDGED = "unjudged"
    """Nobody gave a verdict: not asked, a tie, or an answer that decides nothing."""
    DISPUTED = "disputed"
    """The judge's votes contradict each other, or its verdict another's: the oracle's, a user's or another judge's."""


@dataclass(frozen=True, slots=True)
class JudgedRow:
    """One answer-correct trajectory beside its verdicts; each may be None. Counts are the chosen judge's votes."""

    trajectory_key: int
    run_id: str
    attempt: int
    trajectory_id: int
    step: int
    question_index: int
    mean_entropy: float
    has_code: bool | None
    said: bool | None
    oracle: bool | None
    user: bool | None
    num_valid: int
    num_invalid: int
    num_unjudged: int
    reason: str
    """Why a vote decided nothing."""
