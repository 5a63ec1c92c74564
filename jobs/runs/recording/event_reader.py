"""Reads what a run recorded, from the position where the last read ended."""

import heapq
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from exgrpo.jobs.runs.attempts import AttemptEnd
from exgrpo.jobs.runs.checkpoints import list_checkpoints, list_steps
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.recording.line_events import Event, LineReader
from exgrpo.jobs.tasks.grading.code_rules import mark_code
from exgrpo_core.faults import Fault, FaultKind
from exgrpo_core.recording.lines import parse_lines
from exgrpo_core.recording.record_file import Member, RecordPath, iterate_lines, list_records, read_members

MAX_STEPS = 16
"""Steps with trajectories in one batch: their texts are in memory together."""
MAX_BYTES = 4 << 20
"""A batch ends with the member that exceeds this size: some thousand steps without trajectories."""
_Position = tuple[int, int]
"""Inside one file: (byte where the next member begins, number of its first line)."""
_Found = tuple[tuple[str, bool], str, Member, list[dict[str, Any]] | None]
"""(Time of a member's first line and whether it annotates), name of its position, member, its lines if undamaged."""


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Events in order of attempt and sequence, and the position after them.

    `has_more` is whether more events may exist already.
    """

    events: list[Event]
    position: str
    has_more: bool = False
    faults: list[Fault] = field(default_factory=list)


class EventReader:
    """Reads one run's events while it may be writing; any number of readers may read at once."""

    def __init__(self, run: RunDirectory) -> None:
        self._run = run

    def read(self, after: str | None = None, max_steps: int = MAX_STEPS) -> EventBatch:
        """Return the events after a position (None: from the start), at most `max_steps` steps with trajectories.

        What was appended at once is read at once. If it is the last of its file and not whole, it is not read: it is
        still being written, or was cut by a kill. What is damaged before it is skipped and reported.
        """
        reading = _Reading(self._run, _parse_position(after), max_steps)
        for attempt in self._run.attempts():
            reading.read_attempt(attempt)
            if reading.is_full:
                break
        position = json.dumps({name: list(item) for name, item in sorted(reading.positions.items())})
        return EventBatch(reading.events, position, reading.is_full, reading.faults)

    def batches(self) -> Iterator[EventBatch]:
        """Yield all that is recorded."""
        batch = self.read()
        yield batch
        while batch.has_more:
            yield (batch := self.read(batch.position))


def iterate_events(run: RunDirectory, kind: str) -> Iterator[Event]:
    """Yield the whole lines of one kind that a worker wrote, those of later attempts later, each with its attempt."""
    for attempt in run.attempts():
        for record in list_records(run.attempt_path(attempt)):
            for line in iterate_lines(record.path, {kind}):
                for value in parse_lines([line]):
                    yield value | {"attempt": attempt}


def held_out_scores(run: RunDirectory) -> dict[int, float]:
    """Return the held-out score of each step that was evaluated: correct answers over samples a question."""
    events = (event for event in iterate_events(run, "evaluation") if event["question_set"] == "held_out")
    return {event["step"]: sum(event["num_correct"]) / event["samples_per_question"] for event in events}


def best_checkpoint(run: RunDirectory, among: Collection[int] | None = None) -> int | None:
    """Return the step of the checkpoint with the highest held-out score, of equal ones the first.

    Without `among`, checkpoints that are gone count too.
    """
    scores = held_out_scores(run)
    if among is None:
        among = [event["step"] for event in iterate_events(run, "checkpoint")] + list_steps(run.checkpoints_path)
    return max(sorted({*among} & scores.keys()), key=scores.__getitem__, default=None)


def refusal_of_new_start(run: RunDirectory) -> str:
    """Return why a run that lost all checkpoints is not resumed: it would train from the start; else ""."""
    if list_checkpoints(run.checkpoints_path) or not any(iterate_events(run, "checkpoint")):
        return ""
    return (
        f"{run.run_id} cannot be resumed: its checkpoints, which its events name, are gone; copy them from a backup, "
        "or clone the run to train from the start."
    )


class _Reading:
    def __init__(self, run: RunDirectory, positions: dict[str, _Position], max_steps: int) -> None:
        self.events: list[Event] = []
        self.faults: list[Fault] = []
        self.positions = positions
        self._run = run
        self._num_steps_left = max_steps
        self._num_bytes = 0

    @property
    def is_full(self) -> bool:
        return self._num_steps_left <= 0 or self._num_bytes >= MAX_BYTES

    def read_attempt(self, attempt: int) -> None:
        """Read the new members of an attempt's files, those of several ranks in the order of their times.

        So a trajectory comes before what another rank says of it.
        """
        records = {f"{attempt}/{found.path.name}": found for found in list_records(self._run.attempt_path(attempt))}
        ends = {name: record.path.stat().st_size for name, record in records.items()}
        files = [self._members(name, record) for name, record in records.items()]
        held = set[str]()
        for (_, is_annotation), name, member, lines in heapq.merge(*files, key=itemgetter(0)):
            # What was written since the start may be of a trajectory in a file that was read before.
            if is_annotation and member.begin >= ends[name]:
                held.add(name)
            if name not in held:
                self._add(records[name], attempt, name, member, lines)
            if self.is_full:
                break

    def _members(self, name: str, record: RecordPath) -> Iterator[_Found]:
        for member in read_members(record.path, self.positions.get(name, (0, 0))[0]):
            try:
                lines = None if member.content is None else parse_lines(member.lines())
            except ValueError:
                lines = None
            first = lines[0] if lines else {}
            yield (str(first.get("at", "")), first.get("kind") == "annotation"), name, member, lines

    def _add(
        self, record: RecordPath, attempt: int, name: str, member: Member, lines: Sequence[Mapping[str, Any]] | None
    ) -> None:
        file = record.path.relative_to(self._run.path).as_posix()
        number = self.positions.get(name, (0, 0))[1]
        self.positions[name] = (member.end, number + (1 if lines is None else len(lines)))
        events, is_whole = LineReader(record, attempt, f"{file}@{member.begin}").events(lines or (), number)
        if lines is None or not is_whole:
            self.faults.append(Fault(FaultKind.DAMAGED_LINE, file, (member.begin,)))
        for event in events:
            self._take(event, file, member.begin)
        if not any(event.get("trajectories") for event in events):  # those of steps are counted by steps
            self._num_bytes += len(member.content or b"")

    def _take(self, event: Event, file: str, place: int) -> None:
        kind = event["kind"]
        if kind == "lost":
            self.faults.append(Fault(FaultKind.NOT_RECORDED, file, (event["num_lines"], place), event["reason"]))
            return
        self.events.append(event)
        if kind == "trajectory":
            mark_code([event["trajectory"]])
        elif kind == "step":
            mark_code(event["trajectories"])
        if kind == "votes" or event.get("trajectories"):
            self._num_steps_left -= 1  # votes are as long as a step's texts, or many of them


def find_missing_events(attempt: int, end: AttemptEnd | None, position: str | None) -> list[Fault]:
    """Return what an attempt recorded by its end and does not stand before a position, one fault a file."""
    faults, positions = [], _parse_position(position)
    for name, size in (end.sizes if end else {}).items():
        read = positions.get(f"{attempt}/{name}", (0, 0))[0]
        if read < size:
            faults.append(Fault(FaultKind.MISSING_EVENTS, f"attempts/{attempt:04d}/{name}", (read, size)))
    return faults


def _parse_position(position: str | None) -> dict[str, _Position]:
    content = json.loads(position) if position else {}
    return {name: (int(offset), int(number)) for name, (offset, number) in content.items()}
