"""Votes as recorded on disk, and the verdict of several on the same chain of thought."""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from exgrpo_core.faults import describe_fault
from jobs.judging.verdict import VoteOutcome
from jobs.recording.event_reader import EventReader
from jobs.runs.directory import RunDirectory

logger = logging.getLogger(__name__)

VOTES_EVENT = "votes"
"""An event with one or several `votes`: the oracle is too fast to wait for the disk after each."""
ASKED_EVENT = "asked"
STARTED_EVENT = "judging"
MAX_KEPT_CHARS = 20_000
"""Of longer answers the end is kept, which has the verdict."""

VoteKey = tuple[str, int]
"""(item, number of the vote from 0)."""


@dataclass(frozen=True, slots=True)
class Vote:
    """One recorded vote: item, judge, outcome, cost, and the text of the answer."""

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
        """Item and number of the vote, which are unique."""
        return self.item_id, self.vote

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Self:
        """Read a recorded vote."""
        values = {name: record[name] for name in cls.__dataclass_fields__}
        return cls(**values | {"issues": tuple(values["issues"])})


@dataclass(frozen=True, slots=True)
class RecordedVotes:
    """Votes of earlier attempts, without answers' texts, and their cost, lost answers included."""

    votes: dict[VoteKey, Vote]
    num_requests: int
    num_tokens: int


def read_recorded_votes(run: RunDirectory) -> RecordedVotes:
    """Return the recorded votes. A request without an answer, after a kill, counts with its largest possible cost."""
    votes: dict[VoteKey, Vote] = {}
    unanswered: Counter[VoteKey] = Counter()
    tokens: dict[VoteKey, int] = {}
    for event in _all_events(run):
        if event["kind"] == ASKED_EVENT:
            key = (event["item_id"], event["vote"])
            unanswered[key] += 1
            tokens[key] = event["num_tokens"]
        elif event["kind"] == VOTES_EVENT:
            for vote in map(Vote.from_record, event["votes"]):
                votes[vote.key] = replace(vote, answer="")
                unanswered[vote.key] -= 1
    lost = {key: count for key, count in unanswered.items() if count > 0}
    return RecordedVotes(
        votes,
        sum(vote.num_requests for vote in votes.values()) + sum(lost.values()),
        sum(vote.num_tokens for vote in votes.values()) + sum(tokens[key] * count for key, count in lost.items()),
    )


def _all_events(run: RunDirectory) -> Iterator[dict[str, Any]]:
    reader, position, has_more = EventReader(run), None, True
    while has_more:
        batch = reader.read(position)
        for fault in batch.faults:
            logger.warning("%s: %s", run.run_id, describe_fault(fault))
        yield from batch.events
        position, has_more = batch.position, batch.has_more


def decide(outcomes: Iterable[str]) -> bool | None:
    """Return the majority's verdict; unjudged votes do not count, and a tie is no verdict."""
    counts = Counter(outcomes)
    balance = counts[VoteOutcome.VALID] - counts[VoteOutcome.INVALID]
    return None if balance == 0 else balance > 0


def has_flipped(outcomes: Sequence[str]) -> bool:
    """Return whether two votes on the same chain of thought contradict each other."""
    return {VoteOutcome.VALID.value, VoteOutcome.INVALID.value} <= set(outcomes)
