"""Votes: what one is on disk, and what several on the same chain of thought amount to."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from jobs.judging.verdict import VoteOutcome
from jobs.run_directory import RunDirectory
from jobs.spool_reader import SpoolReader

VOTE_EVENT = "vote"
ASKED_EVENT = "asked"
STARTED_EVENT = "judging"
MAX_KEPT_CHARS = 20_000
"""Of a judge's longer answers the end is kept, which holds the verdict."""

VoteKey = tuple[str, int]
"""(item, number of the vote from 0)."""


@dataclass(frozen=True, slots=True)
class Vote:
    """One vote as it is recorded: on what, by whom, how it came out, what it cost, and the judge's own words."""

    item_id: str
    vote: int
    outcome: str
    reason: str
    issues: tuple[str, ...]
    source: str
    source_attempt: int | None
    trajectory_id: int | None
    label: bool | None
    judge: str
    prompt: str
    num_requests: int
    num_tokens: int
    answer: str

    @property
    def key(self) -> VoteKey:
        """What there is one of."""
        return self.item_id, self.vote

    @classmethod
    def from_event(cls, event: dict[str, Any]) -> Self:
        """Read a recorded vote."""
        values = {name: event[name] for name in cls.__dataclass_fields__}
        return cls(**values | {"issues": tuple(values["issues"])})


@dataclass(frozen=True, slots=True)
class Ledger:
    """What earlier attempts of a judge left: their votes, and what was asked for without an answer on disk."""

    votes: dict[VoteKey, Vote]
    num_requests: int
    num_tokens: int


def read_ledger(run: RunDirectory) -> Ledger:
    """Return what is on disk. A request without an answer, cut off by a kill, counts as one that cost all it could."""
    votes: dict[VoteKey, Vote] = {}
    unanswered: Counter[VoteKey] = Counter()
    tokens: dict[VoteKey, int] = {}
    for event in SpoolReader(run).read().events:
        if event["kind"] == ASKED_EVENT:
            key = (event["item_id"], event["vote"])
            unanswered[key] += 1
            tokens[key] = event["num_tokens"]
        elif event["kind"] == VOTE_EVENT:
            vote = Vote.from_event(event)
            votes[vote.key] = vote
            unanswered[vote.key] -= 1
    lost = {key: count for key, count in unanswered.items() if count > 0}
    return Ledger(
        votes,
        sum(vote.num_requests for vote in votes.values()) + sum(lost.values()),
        sum(vote.num_tokens for vote in votes.values()) + sum(tokens[key] * count for key, count in lost.items()),
    )


def decide(outcomes: Iterable[str]) -> bool | None:
    """Return the majority's verdict; unjudged votes do not count, and a tie is no verdict."""
    counts = Counter(outcomes)
    balance = counts[VoteOutcome.VALID] - counts[VoteOutcome.INVALID]
    return None if balance == 0 else balance > 0


def has_flipped(outcomes: Sequence[str]) -> bool:
    """Return whether two votes on the same chain of thought contradict each other."""
    return {VoteOutcome.VALID.value, VoteOutcome.INVALID.value} <= set(outcomes)
