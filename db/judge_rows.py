"""From a judge's events to rows, and the plain rows that pages show of judges."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from db.json_text import storable_text

_MAX_SOURCE_CHARS = 200
_MAX_COUNT = 2**31 - 1


@dataclass(frozen=True, slots=True)
class JudgeRow:
    """One judge's job: on what, by whom, and how its votes came out. Shares are over responses, majorities of votes."""

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
    """One vote with the judge's own words; `outcome` is valid, invalid or unjudged, `reason` says why unjudged."""

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


def judge_vote_row(run_key: int, vote: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of one vote."""
    trajectory_id = vote["trajectory_id"]
    label = vote["label"]
    return {
        "run_key": run_key,
        "item_id": storable_text(str(vote["item_id"])),
        "vote": int(vote["vote"]),
        "source": str(vote["source"])[:_MAX_SOURCE_CHARS],
        "source_attempt": vote["source_attempt"],
        "trajectory_id": None if trajectory_id is None else int(trajectory_id),
        "outcome": str(vote["outcome"]),
        "reason": str(vote["reason"]),
        "issues": list(vote["issues"]),
        "label": None if label is None else bool(label),
        "judge": str(vote["judge"]),
        "prompt": str(vote["prompt"]),
        "num_requests": min(int(vote["num_requests"]), _MAX_COUNT),
        "num_tokens": min(int(vote["num_tokens"]), _MAX_COUNT),
        "answer": storable_text(str(vote["answer"])),
    }
