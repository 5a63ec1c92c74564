"""The judge's job: from a specification to recorded votes on each chain of thought; it can be resumed."""

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from exgrpo.jobs.evaluation.judging.client import JudgeAnswer, JudgeClient, SpendCapError, Spending, guess_tokens
from exgrpo.jobs.evaluation.judging.items import Items, JudgedItem, open_items
from exgrpo.jobs.evaluation.judging.oracles import judge_item
from exgrpo.jobs.evaluation.judging.verdicts import (
    MAX_TEXT_CHARS,
    JudgePrompt,
    JudgeVerdict,
    RecordedVotes,
    VoteRecords,
    load_judge_prompt,
    read_recorded_votes,
    read_verdict,
)
from exgrpo.jobs.machine.model_server import AddressRefusedError, check_address
from exgrpo.jobs.runs.attempts import write_plan
from exgrpo.jobs.runs.control import Control, Phase, TrainingError
from exgrpo.jobs.runs.directory import RunDirectory, RunDirectoryError
from exgrpo.jobs.specs.judging import JudgeServerSpec, JudgeSpec
from exgrpo.jobs.specs.train import CHAINS_SOURCE
from exgrpo_core.recording.recorder import RunRecorder
from exgrpo_core.recording.rows import VoteOutcome
from exgrpo_core.recording.run_status import RunStatus

logger = logging.getLogger(__name__)

ORACLE_PROMPT = "none"
ORACLE_BATCH = 500
"""Responses that the oracle judges between two writes and checks for a stop."""
_NO_COST = JudgeAnswer("", "", num_requests=0, num_tokens=0)
MAX_FAILURES_IN_A_ROW = 20
STOP_GRACE_SECONDS = 10.0
"""After a request to stop, pending answers are waited for this long, since they are paid for."""
_POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Task:
    """One vote still to be requested."""

    item: JudgedItem
    vote: int


def run_judging(spec: JudgeSpec, run: RunDirectory, recorder: RunRecorder, control: Control) -> RunStatus:
    """Run or resume a judge; return `finished`, or `stopped` if a stop was requested. No vote is requested twice.

    Raises:
        TrainingError: There is nothing to judge, the server is refused or fails, or the spend cap is reached.
    """
    try:
        items = open_items(run.path.parent, spec.judged)
        recorded = read_recorded_votes(run)
        logger.info("%s: %d responses, %d votes are recorded already.", items.source, len(items), len(recorded.votes))
        write_plan(run.attempt_path(run.newest_attempt()), len(items) * spec.num_votes)
        if spec.server is None:
            return _ask_oracle(spec, items, recorded, recorder, control)
        check_address("server.address", spec.server.address)
        return asyncio.run(_ask_server(spec, spec.server, items, recorded, run.run_id, recorder, control))
    except (RunDirectoryError, AddressRefusedError) as error:
        raise TrainingError(str(error)) from error
    except ExceptionGroup as group:
        raise _first_error(group) from group


def _ask_oracle(
    spec: JudgeSpec, items: Items, recorded: RecordedVotes, recorder: RunRecorder, control: Control
) -> RunStatus:
    task_name = next(iter(items)).details.get("data_source", CHAINS_SOURCE)
    judge = f"{str(task_name).replace('_', ' ')} oracle"
    records = VoteRecords(recorder, control, items.source, judge, ORACLE_PROMPT, len(items))
    records.start(len(recorded.votes))
    tasks = _tasks(spec, items, recorded)
    while batch := list(islice(tasks, ORACLE_BATCH)):
        if control.stop_requested():
            return RunStatus.STOPPED
        with control.phase(Phase.ANSWERS):
            records.add_all([records.make(task.item, task.vote, judge_item(task.item), _NO_COST) for task in batch])
    return RunStatus.FINISHED


async def _ask_server(
    spec: JudgeSpec,
    server: JudgeServerSpec,
    items: Items,
    recorded: RecordedVotes,
    job_id: str,
    recorder: RunRecorder,
    control: Control,
) -> RunStatus:
    prompt = load_judge_prompt()
    spending = Spending(server.max_requests, server.max_total_tokens, recorded.num_requests, recorded.num_tokens)
    num_all = len(items) * spec.num_votes
    records = VoteRecords(recorder, control, items.source, server.model, prompt.version_name, num_all)
    records.start(len(recorded.votes), spending)
    async with JudgeClient(server, spending) as client:
        poll = Poll(client, server, prompt, records, job_id)
        with control.phase(Phase.ANSWERS):
            is_done = await poll.run(_tasks(spec, items, recorded), control)
    return RunStatus.FINISHED if is_done else RunStatus.STOPPED


def _tasks(spec: JudgeSpec, items: Items, recorded: RecordedVotes) -> Iterator[Task]:
    for item in items:
        for vote in range(spec.num_votes):
            if (item.item_id, vote) not in recorded.votes:
                yield Task(item, vote)


def _first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error = group.exceptions[0]
    return _first_error(error) if isinstance(error, BaseExceptionGroup) else error


@dataclass(slots=True)
class Poll:
    """Keeps `num_parallel` requests pending until tasks run out, a stop, the spend cap or a failing server."""

    _client: JudgeClient
    _spec: JudgeServerSpec
    _prompt: JudgePrompt
    _records: VoteRecords
    _job_id: str
    _capped_by: str = ""
    _is_over: bool = False
    _failed: list[tuple[Task, JudgeAnswer]] = field(default_factory=list)
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
            self._records.add(item, task.vote, verdict, _NO_COST)
            return
        messages = self._prompt.messages(item.problem, item.solution)
        self._records.record_request(item, task.vote, guess_tokens(messages, self._spec.max_tokens))
        # A hash, since ids may have characters that no header allows.
        vote_name = f"{self._job_id}\n{item.item_id}\n{task.vote}".encode("utf-8", "surrogatepass")
        answer = await self._client.ask(messages, hashlib.sha256(vote_name).hexdigest()[:32])
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
