"""Records a judge's votes in the job's event file; each counts once it is on disk."""

from collections.abc import Sequence
from dataclasses import asdict

from jobs.judging.client import JudgeAnswer
from jobs.judging.items import JudgedItem
from jobs.judging.pacing import Spending
from jobs.judging.verdict import JudgeVerdict
from jobs.judging.votes import ASKED_EVENT, MAX_KEPT_CHARS, STARTED_EVENT, VOTES_EVENT, Vote
from jobs.recording.recorder import RunRecorder
from jobs.runs.control import Control

MAX_TOKENS_KEPT = 2**31 - 1


class VoteRecords:
    """Records votes of one judge on one source and counts them."""

    def __init__(
        self, recorder: RunRecorder, control: Control, *, source: str, judge: str, prompt: str, num_all: int
    ) -> None:
        self._recorder = recorder
        self._control = control
        self._source = source
        self._judge = judge
        self._prompt = prompt
        self.num_all = num_all
        self.num_done = 0

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
            num_tokens=min(answer.num_tokens or 0, MAX_TOKENS_KEPT),
            answer=_storable(answer.text[-MAX_KEPT_CHARS:]),
        )


def _storable(text: str) -> str:
    """Return the text without lone surrogates and NUL, which databases do not accept."""
    return text.encode("utf-8", "replace").decode().replace("\x00", "\N{REPLACEMENT CHARACTER}")
