"""Reads a run's events, from the position where the last read ended."""

import heapq
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa

from exgrpo_core.bounded_json import file_crc, open_plain
from exgrpo_core.faults import Fault, FaultKind
from exgrpo_core.run_files.event_codec import is_event, list_segments, segment_path
from exgrpo_core.run_files.event_lines import decode_line
from exgrpo_core.run_files.trajectory_file import read_questions, read_trajectories, rows_of_step
from jobs.runs.attempts import AttemptEnd
from jobs.runs.checkpoints import list_checkpoints, list_steps
from jobs.runs.directory import RunDirectory, RunDirectoryError, inside
from jobs.runs.recording.rollout_reader import Recording, list_recordings
from jobs.tasks.grading.code_rules import mark_code

MAX_STEPS = 16
"""Steps with trajectories in one batch: their texts are in memory together."""
MAX_BYTES = 4 << 20
"""A batch ends with the event that exceeds this size: some thousand steps without trajectories."""
MAX_LINE_BYTES = 256 << 20
"""A longer line, which no step needs, counts as damaged."""
_Position = tuple[int, int, int]
"""(segment, byte offset, number of the last event) inside one attempt or, of a recording, (0, offset, line)."""
_Rows = dict[str, list[dict[str, Any]]]
_RecordedLine = tuple[tuple[str, bool], str, int, bytes, dict[str, Any]]
"""Of a recording: (its time, whether it annotates), name of its position, byte where it begins, bytes, content."""


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Events in order of attempt and sequence, and the position after them.

    `has_more` is whether more events exist already.
    """

    events: list[dict[str, Any]]
    position: str
    has_more: bool = False
    faults: list[Fault] = field(default_factory=list)


class EventReader:
    """Reads one run's events while it may be writing; any number of readers may read at once."""

    def __init__(self, run: RunDirectory) -> None:
        self._run = run

    def read(self, after: str | None = None, max_steps: int = MAX_STEPS) -> EventBatch:
        """Return the events after a position (None: from the start), at most `max_steps` steps with trajectories.

        An incomplete last line, still being written or cut by a kill, is not read. A complete but damaged line is
        skipped and reported.
        """
        positions = _parse_position(after)
        reading = _Reading(self._run, max_steps)
        for attempt in self._run.attempts():
            name = str(attempt)
            positions[name] = reading.read_attempt(attempt, positions.get(name, (1, 0, 0)))
            reading.read_recordings(attempt, positions)
            if reading.is_full:
                break
        position = json.dumps({name: list(item) for name, item in sorted(positions.items())})
        return EventBatch(reading.events, position, reading.is_full, reading.faults)


def iterate_events(run: RunDirectory, kind: str) -> Iterator[dict[str, Any]]:
    """Yield a run's whole events of one kind, those of later attempts later, without what trajectory files hold."""
    for attempt in run.attempts():
        for number in list_segments(run.attempt_path(attempt)):
            with open_plain(segment_path(run.attempt_path(attempt), number)) as file:
                for line in file:
                    event = decode_line(line[:-1])
                    if event is not None and is_event(event) and event["kind"] == kind:
                        yield event


def held_out_scores(run: RunDirectory) -> dict[int, float]:
    """Return the held-out score of each step that was evaluated: right answers over samples a question."""
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
    def __init__(self, run: RunDirectory, max_steps: int) -> None:
        self.events: list[dict[str, Any]] = []
        self.faults: list[Fault] = []
        self._run = run
        self._num_steps_left = max_steps
        self._num_bytes = 0
        self._last = 0
        self._trajectories: tuple[Path, pa.Table] | None = None
        self._checked: Path | None = None

    @property
    def is_full(self) -> bool:
        return self._num_steps_left <= 0 or self._num_bytes >= MAX_BYTES

    def read_attempt(self, attempt: int, position: _Position) -> _Position:
        segment, offset, self._last = position
        for number in list_segments(self._run.attempt_path(attempt)):
            if number < segment:
                continue
            if number > segment:
                segment, offset = number, 0
            offset = self._read_segment(attempt, segment, offset)
            if self.is_full:
                break
        return segment, offset, self._last

    def _read_segment(self, attempt: int, segment: int, offset: int) -> int:
        path = segment_path(self._run.attempt_path(attempt), segment)
        for begin, line in self._lines(path, offset):
            if self.is_full:
                break
            self._num_bytes += len(line)
            offset = begin + len(line)
            event = decode_line(line[:-1])
            if event is None or not is_event(event):
                self._report(FaultKind.DAMAGED_LINE, path, begin)
                self._last += 1
                continue
            self._last = max(self._last, event["seq"])
            self._add(event)
        return offset

    def read_recordings(self, attempt: int, positions: dict[str, _Position]) -> None:
        """Read the new lines of an attempt's recordings; the last number of a position is that of the next line.

        They are read in the order of their times, so a trajectory comes before what another rank says of it.
        """
        recordings = {
            f"{attempt}/{found.path.name}": found for found in list_recordings(self._run.attempt_path(attempt))
        }
        ends = {name: recording.path.stat().st_size for name, recording in recordings.items()}
        starts = {name: positions.get(name, (0, 0, 0))[1] for name in recordings}
        files = [self._recorded_lines(name, recordings[name].path, starts[name]) for name in recordings]
        first, held = len(self.events), set[str]()
        for (_, is_annotation), name, begin, line, content in heapq.merge(*files, key=itemgetter(0)):
            if self.is_full:
                break
            # What was written since the start may be of a trajectory in a file that was read before.
            if is_annotation and begin >= ends[name]:
                held.add(name)
            if name not in held:
                number = positions.get(name, (0, 0, 0))[2]
                self._num_bytes += len(line)
                self._add_line(attempt, recordings[name], (begin, number), line, content)
                positions[name] = (0, begin + len(line), number + 1)
        mark_code(event["trajectory"] for event in self.events[first:] if event["kind"] == "rollout")

    def _recorded_lines(self, name: str, path: Path, offset: int) -> Iterator[_RecordedLine]:
        for begin, line in self._lines(path, offset):
            content = decode_line(line[:-1]) or {}
            yield (str(content.get("at", "")), content.get("kind") == "annotation"), name, begin, line, content

    def _add_line(
        self, attempt: int, recording: Recording, place: tuple[int, int], line: bytes, content: dict[str, Any]
    ) -> None:
        begin, number = place
        try:
            event = recording.event(content, number, attempt, f"{self._name(recording.path)}@{begin}")
            self._add_recorded(event, recording.path)
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
            if line.strip():
                self._report(FaultKind.DAMAGED_LINE, recording.path, begin)

    def _add_recorded(self, event: dict[str, Any], path: Path) -> None:
        if event["kind"] == "lost":
            fault = Fault(FaultKind.NOT_RECORDED, self._name(path), (event["num_lines"],), event["reason"])
            self.faults.append(fault)
        else:
            self.events.append(event)

    def _lines(self, path: Path, offset: int) -> Iterator[tuple[int, bytes]]:
        """Yield the whole lines of a file from a byte on, each with where it begins."""
        with open_plain(path) as file:
            file.seek(offset)
            while line := file.readline(MAX_LINE_BYTES):
                if not line.endswith(b"\n") and len(line) < MAX_LINE_BYTES:
                    break
                yield offset, line
                offset += len(line)

    def _name(self, path: Path) -> str:
        return path.relative_to(self._run.path).as_posix()

    def _add(self, event: dict[str, Any]) -> None:
        self.events.append(event)
        if event["kind"] == "step" and event.get("file") is None:
            event |= {"trajectories": [], "replays": []}
        elif event["kind"] == "step":
            self._num_steps_left -= 1
            event |= self._read_file(event, partial(self._read_step, event["step"])) or {
                "trajectories": [],
                "replays": [],
            }
            mark_code(event["trajectories"])
        elif event["kind"] == "votes":
            self._num_steps_left -= 1  # as long as a step's texts, or many of them
        elif event["kind"] == "questions":
            event |= self._read_file(event, read_questions) or {"questions": []}

    def _read_step(self, step: int, path: Path) -> _Rows:
        if self._trajectories is None or self._trajectories[0] != path:
            self._trajectories = path, read_trajectories(path)
        return rows_of_step(self._trajectories[1], step)

    def _read_file(self, event: Mapping[str, Any], read: Callable[[Path], _Rows]) -> _Rows | None:
        name = event["file"]
        try:
            path = inside(self._run.path, name)
            if self._has_changed(path, event["file_crc"]):
                self._report(FaultKind.CHANGED, path)
                return None
            return read(path)
        except RunDirectoryError:
            self._report(FaultKind.OUTSIDE, self._run.path / name)
        except FileNotFoundError:
            self._report(FaultKind.MISSING, self._run.path / name)
        except (OSError, pa.ArrowException, KeyError, ValueError) as error:
            why = " ".join(str(error).removeprefix(f"{path}: ").split())
            self._report(FaultKind.UNREADABLE, self._run.path / name, details=f"{type(error).__name__}: {why}")
        return None

    def _has_changed(self, path: Path, crc: int) -> bool:
        """Return whether a file differs from its checksum; a file of several steps is read once."""
        if path == self._checked:
            return False
        self._checked = path if file_crc(path) == crc else None
        return self._checked is None

    def _report(self, kind: FaultKind, path: Path, *position: int, details: str = "") -> None:
        fault = Fault(kind, self._name(path), position, details)
        if fault not in self.faults:
            self.faults.append(fault)


def last_number(position: str, attempt: int) -> int:
    """Return the number of the attempt's last event before a position."""
    return _parse_position(position).get(str(attempt), (1, 0, 0))[2]


def find_missing_events(attempt: int, end: AttemptEnd | None, position: str | None) -> Fault | None:
    """Return the events that an attempt recorded by its end and that do not stand before a position."""
    last = last_number(position or "{}", attempt)
    if end is None or end.num_events is None or last >= end.num_events:
        return None
    return Fault(FaultKind.MISSING_EVENTS, f"attempts/{attempt:04d}", (last + 1, end.num_events))


def _parse_position(position: str | None) -> dict[str, _Position]:
    content = json.loads(position) if position else {}
    return {name: (int(segment), int(offset), int(last)) for name, (segment, offset, last) in content.items()}
