"""The judge's job: from a specification to recorded votes on each chain of thought; it can be resumed."""

import asyncio
import logging
from collections.abc import Iterator
from itertools import islice

from jobs.judging.client import JudgeAnswer, JudgeClient
from jobs.judging.items import Items, open_items
from jobs.judging.oracle import judge_item, oracle_name
from jobs.judging.pacing import Spending
from jobs.judging.polling import Poll, Task
from jobs.judging.prompt import load_judge_prompt
from jobs.judging.records import VoteRecords
from jobs.judging.votes import RecordedVotes, read_recorded_votes
from jobs.machine.model_server import AddressRefusedError, check_address
from jobs.recording.recorder import RunRecorder
from jobs.runs.control import Control, TrainingError
from jobs.runs.directory import RunDirectory, RunDirectoryError
from jobs.runs.plan import write_plan
from jobs.runs.status import RunStatus
from jobs.runs.stop_time import Phase
from jobs.specs.judging import JudgeServerSpec, JudgeSpec

logger = logging.getLogger(__name__)

ORACLE_PROMPT = "none"
ORACLE_BATCH = 500
"""Responses that the oracle judges between two writes and checks for a stop."""
_NO_COST = JudgeAnswer("", "", num_requests=0, num_tokens=0)


def run_judging(spec: JudgeSpec, run: RunDirectory, recorder: RunRecorder, control: Control) -> RunStatus:
    """Run or resume a judge; return `finished`, or `stopped` if a stop was requested. No vote is requested twice.

    Raises:
        TrainingError: There is nothing to judge, the server is refused or fails, or the spend cap is reached.
    """
    try:
        items = open_items(run.path.parent, spec.judged)
        recorded = read_recorded_votes(run)
        logger.info("%s: %d responses, %d votes are recorded already.", items.source, len(items), len(recorded.votes))
        write_plan(run.attempt_path(run.newest_attempt()), {"num_votes": len(items) * spec.num_votes})
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
    records = VoteRecords(
        recorder,
        control,
        source=items.source,
        judge=oracle_name(next(iter(items))),
        prompt=ORACLE_PROMPT,
        num_all=len(items),
    )
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
    records = VoteRecords(
        recorder, control, source=items.source, judge=server.model, prompt=prompt.version_name, num_all=num_all
    )
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
