"""Plain rows of judges' jobs and votes."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class JudgeRow:
    """One judge's job with the results of its votes. A response's verdict is the majority of its votes."""

    judge_run_id: str
    name: str
    status: str
    created_at: datetime
    source: str
    judge: str
    prompt: str
    num_votes: int
    num_responses: int
    num_valid: int
    num_invalid: int
    num_unjudged: int
    num_tokens: int


@dataclass(frozen=True, slots=True)
class VoteRow:
    """One vote with the judge's text; `outcome` is valid, invalid or unjudged, `reason` says why unjudged."""

    judge_run_id: str
    item_id: str
    vote: int
    outcome: str
    reason: str
    issues: tuple[str, ...]
    judge: str
    prompt: str
    num_requests: int
    num_tokens: int
    answer: str


@dataclass(frozen=True, slots=True)
class LabelledVoteRow:
    """One vote of a calibration beside the human's label."""

    item_id: str
    label: bool
    outcome: str
