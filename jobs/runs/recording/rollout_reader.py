"""The recordings of a loop as events: one a line, numbered by the place of the line, so that no writer numbers any.

The n-th line of rank r of R ranks is event n * R + r + 1, and its trajectory has the number n * R + r.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from exgrpo_core.bounded_json import UnreadableFileError, open_plain
from exgrpo_core.recording.conversations import as_document, split, text_of
from exgrpo_core.recording.lines import FILE_PREFIX, parse_facts, parse_trajectory, token_values
from exgrpo_core.recording.rows import Message, RecordedTrajectory
from exgrpo_core.recording.run import MAX_STEP
from exgrpo_core.run_files.event_lines import decode_line

_NAME = re.compile(re.escape(FILE_PREFIX) + r"([0-9]{4,9})-of-([0-9]{4,9})\.jsonl")
_KINDS = {"trajectory": "rollout", "metrics": "recorded_metrics", "annotation": "annotation", "lost": "lost"}
MAX_QUESTION_ID = 80
MAX_VERDICT = 16


@dataclass(frozen=True, slots=True)
class Recording:
    """The file of one rank."""

    path: Path
    rank: int
    num_ranks: int

    def event(self, line: dict[str, Any], number: int, attempt: int, file: str) -> dict[str, Any]:
        """Return the event of a line, with its number from 0; `file` says where it is.

        Raises:
            ValueError: It is no line of a recording, or has a field of another type.
            OverflowError: A number or a time is out of range.
        """
        kind, step = line.get("kind"), line.get("step")
        if kind not in _KINDS or isinstance(step, bool) or not isinstance(step, int) or not 0 <= step <= MAX_STEP:
            raise ValueError("expected a kind and a step")
        at = datetime.fromisoformat(line["at"]) if isinstance(line.get("at"), str) else None
        if at is None or at.tzinfo is None:
            raise ValueError("at: expected a time with its zone")
        at.astimezone(UTC)  # fails for a time that is out of range
        place = number * self.num_ranks + self.rank
        event = {"kind": _KINDS[kind], "seq": place + 1, "attempt": attempt, "at": line["at"], "step": step}
        if kind == "trajectory":
            name = line.get("id")
            return event | {"trajectory": _row(parse_trajectory(line), place, file, name)}
        if kind == "metrics":
            suffix = f" (rank {self.rank})" if self.rank else ""
            return event | {"metrics": {f"{name}{suffix}": float(value) for name, value in line["metrics"].items()}}
        if kind == "annotation":
            return event | {"id": str(line["id"]), "facts": parse_facts(line["facts"])}
        return event | {"num_lines": int(line["num_lines"]), "reason": str(line["reason"])}


def list_recordings(attempt_path: Path) -> list[Recording]:
    """Return the recordings of an attempt, by rank."""
    matches = [(path, _NAME.fullmatch(path.name)) for path in sorted(attempt_path.glob(f"{FILE_PREFIX}*.jsonl"))]
    found = [Recording(path, int(match[1]), int(match[2])) for path, match in matches if match]
    return [recording for recording in found if recording.rank < recording.num_ranks]


def read_tokens(path: Path, place: str) -> dict[str, list[float] | None]:
    """Return the values of the tokens of the trajectory whose line begins at a byte of a recording.

    Raises:
        UnreadableFileError: There is no whole line of a trajectory.
    """
    with open_plain(path) as file:
        file.seek(int(place))
        line = decode_line(file.readline().removesuffix(b"\n")) or {}
    try:
        arrays = {name: token_values(line, name) for name in ("token_ids", "entropies", "log_probs")}
    except ValueError as error:
        raise UnreadableFileError(f"{path}: {error}; use another copy of the run.") from None
    return {name: None if array is None else array.tolist() for name, array in arrays.items()} | {
        "behavior_log_probs": None
    }


def _row(trajectory: RecordedTrajectory, number: int, file: str, name: object) -> dict[str, Any]:
    """Return a trajectory as an event's, of which the database alone knows the number of the question."""
    prompt, response = split(trajectory.messages)
    return {
        "trajectory_id": number,
        "recorded_id": name if isinstance(name, str) else "",
        "question_id": _question_id(trajectory, prompt),
        "group": trajectory.group,
        "prompt_text": text_of(prompt),
        "answer": trajectory.answer or "",
        "reward": trajectory.reward,
        "verdict": (trajectory.verdict or "")[:MAX_VERDICT],
        "is_valid": None,
        "has_code": None,
        "is_truncated": trajectory.is_truncated,
        "num_tokens": _num_tokens(trajectory),
        "mean_entropy": _mean(trajectory.entropies),
        "mean_log_prob": _mean(trajectory.log_probs),
        "advantage": trajectory.advantage,
        "text": text_of(response),
        "messages": as_document(trajectory.messages),
        "extra": dict(trajectory.extra) or None,
        "file": file,
    }


def _question_id(trajectory: RecordedTrajectory, prompt: Sequence[Message]) -> str:
    given = trajectory.question_id
    if given is not None and len(given) <= MAX_QUESTION_ID:
        return given
    content = given or "\x1f".join(f"{message.role}\x1e{message.text}" for message in prompt)
    return hashlib.sha256(content.encode("utf-8", errors="surrogatepass")).hexdigest()[:16]


def _num_tokens(trajectory: RecordedTrajectory) -> int | None:
    if trajectory.num_tokens is not None:
        return trajectory.num_tokens
    arrays = (trajectory.token_ids, trajectory.entropies, trajectory.log_probs)
    if known := [len(array) for array in arrays if array is not None]:
        return known[0]
    counts = [message.num_tokens for message in trajectory.messages if message.is_generated]
    return sum(filter(None, counts)) if counts and None not in counts else None


def _mean(values: Any) -> float | None:  # noqa: ANN401 - an array or None
    return None if values is None or not len(values) else float(np.mean(values, dtype=np.float64))
