"""From the lines of a record to events: a line with its number and its attempt; a step with its trajectories.

The n-th line of rank r of R ranks is event n * R + r + 1, so no writer numbers any; a loop's trajectory has the number
n * R + r.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from exgrpo_core.recording.conversations import as_document, split, text_of
from exgrpo_core.recording.lines import parse_facts, parse_trajectory
from exgrpo_core.recording.record_file import RecordPath
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
