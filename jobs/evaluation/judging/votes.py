"""Votes of a judge on disk: how they are recorded, each counting once it is there, and read back."""

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from exgrpo.jobs.evaluation.judging.client import JudgeAnswer, Spending
from exgrpo.jobs.evaluation.judging.items import JudgedItem
from exgrpo.jobs.evaluation.judging.verdicts import JudgeVerdict
from exgrpo.jobs.runs.control import Control
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.recording.event_reader import EventReader
from exgrpo_core.faults import describe_fault
from exgrpo_core.recording.recorder import RunRecorder

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
    for batch in EventReader(run).batches():
        for fault in batch.faults:
            logger.warning("%s: %s", run.run_id, describe_fault(fault))
        yield from batch.events


@dataclass(slots=True)
class VoteRecords:
    """Records votes of one judge on one source and counts them."""

    _recorder: RunRecorder
    _control: Control
    _source: str
    _judge: str
    _prompt: str
    num_all: int
    num_done: int = 0

    def start(self, num_done: int, spending: Spending | None = None) -> None:
        """Record the number of votes, those of earlier attempts and what these spent."""
        self.num_done = num_done
        fields = {
            "source": self._source,
            "judge": self._judge,
            "prompt": self._prompt,
            "num_votes": self.num_all,
            "num_done": num_done,
            "num_requests": spending.num_requests if spending else 0,
            "num_tokens": spending.num_tokens if spending else 0,
        }
        self._recorder.record(STARTED_EVENT, fields)
        self._control.heartbeat(num_done)

    def record_request(self, item: JudgedItem, vote: int, num_tokens: int) -> None:
        """Record that a request is about to be sent: without an answer it counts as paid for."""
        self._recorder.record(ASKED_EVENT, {"item_id": item.item_id, "vote": vote, "num_tokens": num_tokens})

    def add(self, item: JudgedItem, vote: int, verdict: JudgeVerdict, answer: JudgeAnswer) -> None:
        """Record one vote; it is on disk when this returns."""
        self.add_all([self.make(item, vote, verdict, answer)])

    def add_all(self, votes: Sequence[Vote]) -> None:
        """Record several votes at once; all are on disk when this returns."""
        self._recorder.record(VOTES_EVENT, {"votes": [asdict(vote) for vote in votes]})
        self.num_done += len(votes)
        self._control.heartbeat(self.num_done)

    def make(self, item: JudgedItem, vote: int, verdict: JudgeVerdict, answer: JudgeAnswer) -> Vote:
        """Return the record of one vote."""
        return Vote(
            item_id=item.item_id,
            vote=vote,
            outcome=verdict.outcome.value,
            reason=verdict.reason,
            issues=tuple(issue.value for issue in verdict.issues),
            source=self._source,
            source_attempt=item.attempt,
            trajectory_id=item.trajectory_id,
            label=item.label,
            judge=self._judge,
            prompt=self._prompt,
            num_requests=answer.num_requests,
            num_tokens=answer.num_tokens or 0,
            answer=_storable(answer.text[-MAX_KEPT_CHARS:]),
        )


def _storable(text: str) -> str:
    """Return the text without lone surrogates and NUL, which databases do not accept."""
    return text.encode("utf-8", "replace").decode().replace("\x00", "\N{REPLACEMENT CHARACTER}")
