"""Reads what a run recorded, from the position where the last read ended."""

import hashlib
import heapq
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any

from exgrpo.jobs.runs.attempts import AttemptEnd
from exgrpo.jobs.runs.checkpoints import list_checkpoints, list_steps
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.tasks.grading.code_rules import mark_code
from exgrpo_core.faults import Fault, FaultKind
from exgrpo_core.recording.conversations import as_document, split, text_of
from exgrpo_core.recording.lines import parse_facts, parse_lines, parse_trajectory
from exgrpo_core.recording.record_file import Member, RecordPath, iterate_lines, list_records, read_members
from exgrpo_core.recording.rows import Message
from exgrpo_core.recording.run import MAX_STEP

Line = Mapping[str, Any]
Event = dict[str, Any]
MAX_QUESTION_ID = 80
MAX_VERDICT = 16


def _optional(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else convert(value)


def _exactly(kind: type) -> Callable[[Any], Any]:
    def check(value: object) -> object:
        if type(value) is not kind:
            raise ValueError(f"expected {kind.__name__}, got {value!r}")
        return value

    return check


_BOTH = {
    **dict.fromkeys(("group_position", "question_index", "trajectory_id", "num_tokens"), _exactly(int)),
    **dict.fromkeys(("reward", "advantage", "mean_entropy", "mean_log_prob"), _optional(float)),
}
_FRESH = _BOTH | {
    "group_slot": _exactly(int),
    "verdict": _exactly(str),
    "text": _exactly(str),
    **dict.fromkeys(("is_valid", "has_code", "is_truncated"), _optional(_exactly(bool))),
}
_REPLAY = _BOTH | {
    "rollout_step": _exactly(int),
    "is_external": _exactly(bool),
    **dict.fromkeys(("mean_ratio", "max_ratio"), _optional(float)),
}


@dataclass(frozen=True, slots=True)
class LineReader:
    """Makes events of the lines of one member."""

    record: RecordPath
    attempt: int
    place: str
    """The file, inside the run's folder, and the byte where the member begins: `file@byte`."""

    def events(self, lines: Sequence[Line], first: int) -> tuple[list[Event], bool]:
        """Return the events of a member's lines, and whether all of them are such as a recorder writes.

        `first` is the number of the first line, from 0.
        """
        events: list[Event] = []
        steps: dict[int, Event] = {}
        is_whole = True
        for number, line in enumerate(lines, first):
            try:
                if line["kind"] in {"trajectory", "replay"} and line["step"] in steps:
                    self._add_to(steps[line["step"]], line)
                    continue
                events.append(self._event(line, number))
                if line["kind"] == "step":
                    steps[line["step"]] = events[-1]
            except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
                is_whole = False
        return events, is_whole

    def _add_to(self, step: Event, line: Line) -> None:
        is_fresh = line["kind"] == "trajectory"
        row = {name: convert(line.get(name)) for name, convert in (_FRESH if is_fresh else _REPLAY).items()}
        if is_fresh and "extra" in line:
            row["extra"] = dict(line["extra"])
        step["trajectories" if is_fresh else "replays"].append(row)
        step["file"] = self.place

    def _event(self, line: Line, number: int) -> Event:
        kind, step = line.get("kind"), line.get("step", 0)
        if (
            not isinstance(kind, str)
            or isinstance(step, bool)
            or not isinstance(step, int)
            or not 0 <= step <= MAX_STEP
        ):
            raise ValueError("expected a kind and a step")
        at = datetime.fromisoformat(line["at"]) if isinstance(line["at"], str) else None
        if at is None or at.tzinfo is None:
            raise ValueError("at: expected a time with its zone")
        at.astimezone(UTC)  # fails for a time that is out of range
        place = number * self.record.num_ranks + self.record.rank
        fields = _PARSERS[kind](self, line, place) if kind in _PARSERS else dict(line)
        return fields | {"kind": kind, "at": line["at"], "seq": place + 1, "attempt": self.attempt}

    def _trajectory(self, line: Line, place: int) -> Event:
        messages, facts = parse_trajectory(line)
        name = line["id"] if isinstance(line.get("id"), str) else ""
        prompt, response = split(messages)
        row = {
            "trajectory_id": place,
            "recorded_id": name,
            "question_id": _question_id(facts.get("question_id"), prompt),
            "prompt_text": text_of(prompt),
            "answer": facts.get("answer") or "",
            "verdict": (facts.get("verdict") or "")[:MAX_VERDICT],
            "is_valid": None,
            "has_code": None,
            "num_tokens": _num_tokens(facts, messages),
            "text": text_of(response),
            "messages": as_document(messages),
            "extra": facts["extra"] or None,
            "file": f"{self.place}:{name}",
        }
        names = ("group", "reward", "is_truncated", "mean_entropy", "mean_log_prob", "advantage")
        return {"step": line["step"], "trajectory": {name: facts.get(name) for name in names} | row}

    def _metrics(self, line: Line, _place: int) -> Event:
        suffix = f" (rank {self.record.rank})" if self.record.rank else ""
        values = {f"{name}{suffix}": float(value) for name, value in line["metrics"].items()}
        return {"step": line["step"], "metrics": values}

    def _annotation(self, line: Line, _place: int) -> Event:
        return {"step": line["step"], "id": str(line["id"]), "facts": parse_facts(line["facts"])}

    def _config(self, line: Line, _place: int) -> Event:
        return {"step": line["step"], "config": dict(line["config"])}

    def _lost(self, line: Line, _place: int) -> Event:
        return {"step": line["step"], "num_lines": int(line["num_lines"]), "reason": str(line["reason"])}

    def _step(self, line: Line, _place: int) -> Event:
        return {**line, "step": line["step"], "trajectories": [], "replays": [], "file": None}

    def _questions(self, line: Line, _place: int) -> Event:
        for question in line["questions"]:
            if not isinstance(question["details"].get("question", ""), str):
                raise ValueError("details of a question: expected that `question` is a text")
        return dict(line)


_PARSERS: dict[str, Callable[[LineReader, Line, int], Event]] = {
    "trajectory": LineReader._trajectory,
    "metrics": LineReader._metrics,
    "annotation": LineReader._annotation,
    "config": LineReader._config,
    "lost": LineReader._lost,
    "step": LineReader._step,
    "questions": LineReader._questions,
}


def _question_id(given: str | None, prompt: Sequence[Message]) -> str:
    if given is not None and len(given) <= MAX_QUESTION_ID:
        return given
    content = given or "\x1f".join(f"{message.role}\x1e{message.text}" for message in prompt)
    return hashlib.sha256(content.encode("utf-8", errors="surrogatepass")).hexdigest()[:16]


def _num_tokens(facts: Mapping[str, Any], messages: Sequence[Message]) -> int | None:
    if facts.get("num_tokens") is not None:
        return int(facts["num_tokens"])
    counts = [message.num_tokens for message in messages if message.is_generated]
    return sum(filter(None, counts)) if counts and None not in counts else None


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
