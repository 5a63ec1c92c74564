"""Plain rows of judges' jobs and votes."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from exgrpo.db.rows.sort_order import SortOrder
from exgrpo_core.recording.rows import VoteOutcome


@dataclass(frozen=True, slots=True)
class JudgeRow:
    """One judge's job on a training run or a labelled file, with its votes so far and its spend cap.

    A response's verdict is the majority of its votes; `num_unjudged` counts responses, `num_unjudged_votes` votes.
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
    max_requests: int | None
    max_total_tokens: int | None
    num_votes: int
    num_unjudged_votes: int
    num_responses: int
    num_valid: int
    num_invalid: int
    num_unjudged: int
    num_requests: int
    num_tokens: int


@dataclass(frozen=True, slots=True)
class VoteRow:
    """One vote with the judge's text; `reason` says why it is unjudged."""

    judge_run_id: str
    item_id: str
    vote: int
    outcome: VoteOutcome
    reason: str
    issues: tuple[str, ...]
    judge: str
    prompt: str
    num_requests: int
    num_tokens: int
    answer: str


class JudgedSortKey(StrEnum):
    """What lists of judged trajectories may be sorted by."""

    STEP = "step"
    QUESTION = "question"
    ENTROPY = "entropy"
    CODE = "code"
    JUDGE = "judge"
    ORACLE = "oracle"
    USER = "user"


JudgedOrder = SortOrder[JudgedSortKey]


class VerdictFilter(StrEnum):
    """Which answer-correct trajectories to list."""

    ALL = "all"
    JUDGED = "judged"
    UNJUDGED = "unjudged"
    """Nobody gave a verdict: not judged, a tie, or an undecided answer."""
    DISPUTED = "disputed"
    """The judge's votes contradict each other, or its verdict contradicts the oracle's, a user's or another judge's."""


@dataclass(frozen=True, slots=True)
class JudgedRow:
    """One answer-correct trajectory with its verdicts; each may be None. Counts are the chosen judge's votes."""

    trajectory_key: int
    run_id: str
    attempt: int
    trajectory_id: int
    step: int
    question_index: int
    mean_entropy: float
    has_code: bool | None
    by_judge: bool | None
    oracle: bool | None
    user: bool | None
    num_valid: int
    num_invalid: int
    num_unjudged: int
    reason: str
    """Why a vote gave no verdict."""
