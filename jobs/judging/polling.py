"""Parallel requests for votes on many chains of thought; each vote is recorded as soon as it arrives."""

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass

from jobs.judging.client import JudgeAnswer, JudgeClient, SpendCapError, guess_tokens
from jobs.judging.items import JudgedItem
from jobs.judging.verdicts import MAX_TEXT_CHARS, JudgePrompt, JudgeVerdict, VoteOutcome, read_verdict
from jobs.judging.votes import VoteRecords
from jobs.runs.control import Control, TrainingError
from jobs.specs.judging import JudgeServerSpec

logger = logging.getLogger(__name__)

MAX_FAILURES_IN_A_ROW = 20
STOP_GRACE_SECONDS = 10.0
"""After a request to stop, pending answers are waited for this long, since they are paid for."""
_POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Task:
    """One vote still to be requested."""

    item: JudgedItem
    vote: int


class Poll:
    """Keeps `num_parallel` requests pending until tasks run out, a stop, the spend cap or a failing server."""

    def __init__(
        self, client: JudgeClient, spec: JudgeServerSpec, prompt: JudgePrompt, records: VoteRecords, job_id: str
    ) -> None:
        self._client = client
        self._spec = spec
        self._prompt = prompt
        self._records = records
        self._job_id = job_id
        self._capped_by = ""
        self._is_over = False
        self._failed: list[tuple[Task, JudgeAnswer]] = []
        """Consecutive questions without an answer. If the server fails for good, a resume requests them again."""

    async def run(self, tasks: Iterator[Task], control: Control) -> bool:
        """Request every vote and return whether all arrived; False if a stop was requested.

        Raises:
            TrainingError: The spend cap is reached, or the server keeps failing.
        """
        async with asyncio.TaskGroup() as group:
            askers = [group.create_task(self._ask_all(tasks)) for _ in range(self._spec.num_parallel)]
            watcher = group.create_task(self._watch(askers, control))
            await asyncio.wait(askers)
            watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watcher
        self._keep_failures()
        if self._capped_by:
            raise TrainingError(
                f"The spend cap ends the judging: {self._capped_by}. {self._records.num_done} votes of "
                f"{self._records.num_all} are recorded and kept."
            )
        return not self._is_over

    async def _watch(self, askers: list[asyncio.Task[None]], control: Control) -> None:
        while not control.stop_requested():
            await asyncio.sleep(_POLL_SECONDS)
        self._is_over = True
        await asyncio.sleep(STOP_GRACE_SECONDS)
        for asker in askers:
            asker.cancel()

    async def _ask_all(self, tasks: Iterator[Task]) -> None:
        while not (self._is_over or self._capped_by):
            task = next(tasks, None)
            if task is None:
                return
            try:
                await self._ask(task)
            except SpendCapError as cap:
                self._capped_by = str(cap)

    async def _ask(self, task: Task) -> None:
        item = task.item
        if max(len(item.problem), len(item.solution)) > MAX_TEXT_CHARS:
            verdict = JudgeVerdict(VoteOutcome.UNJUDGED, "text_too_long")
            self._records.add(item, task.vote, verdict, JudgeAnswer("", "", num_requests=0, num_tokens=0))
            return
        messages = self._prompt.messages(item.problem, item.solution)
        self._records.record_request(item, task.vote, guess_tokens(messages, self._spec.max_tokens))
        answer = await self._client.ask(messages, _request_key(self._job_id, item.item_id, task.vote))
        if answer.is_failure:
            self._add_failure(task, answer)
            return
        self._keep_failures()
        self._keep(task, answer)

    def _add_failure(self, task: Task, answer: JudgeAnswer) -> None:
        self._failed.append((task, answer))
        if len(self._failed) >= MAX_FAILURES_IN_A_ROW:
            raise TrainingError(
                f"The judge's server failed {len(self._failed)} times in a row (the last time: {answer.reason}); "
                "check it and resume: recorded votes are kept."
            )

    def _keep_failures(self) -> None:
        """Record failed questions as unjudged: the server answers others, so these questions failed."""
        for task, answer in self._failed:
            self._keep(task, answer)
        self._failed.clear()

    def _keep(self, task: Task, answer: JudgeAnswer) -> None:
        is_answer = not answer.reason
        verdict = read_verdict(answer.text) if is_answer else JudgeVerdict(VoteOutcome.UNJUDGED, answer.reason)
        self._records.add(task.item, task.vote, verdict, answer)


def _request_key(job_id: str, item_id: str, vote: int) -> str:
    """Return an idempotency key of a vote: a hash, since ids may have characters that no header allows."""
    return hashlib.sha256(f"{job_id}\n{item_id}\n{vote}".encode("utf-8", "surrogatepass")).hexdigest()[:32]
