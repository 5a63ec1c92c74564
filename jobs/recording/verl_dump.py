"""The rollout dumps of a stock verl run (`trainer.rollout_data_dir`): one `STEP.jsonl` a step, one line a rollout."""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exgrpo_core.bounded_json import open_plain, parse_json
from exgrpo_core.errors import InputError

_MAX_SCORE = sys.float_info.max
_STEP_FILE = re.compile(r"[0-9]{1,9}\.jsonl")


class DumpError(InputError, ValueError):
    """A dump that cannot be read; one sentence names the file, and the line if one is wrong."""


@dataclass(frozen=True, slots=True)
class DumpedRollout:
    """One line: the decoded prompt and response, the gold answer, the score, and verl's name of the question."""

    group: str
    """Rollouts of one question in one step share it."""
    prompt: str
    response: str
    answer: str
    score: float


@dataclass(frozen=True, slots=True)
class DumpedStep:
    """One file; `bad_lines` are sentences on lines that are no rollouts."""

    step: int
    rollouts: list[DumpedRollout]
    bad_lines: list[str]


def read_dump(folder: Path) -> Iterator[DumpedStep]:
    """Yield the dump's steps in order.

    Raises:
        DumpError: There is no dump, it is one of validation, or a file cannot be read.
    """
    if not folder.is_dir():
        raise DumpError(f"{folder}: expected the folder that trainer.rollout_data_dir named.")
    files = _step_files(folder)
    if not files:
        raise DumpError(f"{folder}: has no rollout dumps (1.jsonl, 2.jsonl, ...); name the folder that has.")
    if _step_of(files[0]) == 0:
        raise DumpError(f"{files[0]}: step 0 has no rollouts of training; validation dumps cannot be adopted.")
    for path in files:
        yield _read_step(path)


def last_step(folder: Path) -> int:
    """Return the last step of a dump by the names of its files, 1 where there is none."""
    return max([1, *map(_step_of, _step_files(folder))])


def _step_files(folder: Path) -> list[Path]:
    return sorted((path for path in folder.glob("*.jsonl") if _STEP_FILE.fullmatch(path.name)), key=_step_of)


def _step_of(path: Path) -> int:
    return int(path.stem)


def _read_step(path: Path) -> DumpedStep:
    rollouts, bad_lines = [], []
    try:
        with open_plain(path) as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                try:
                    rollouts.append(_parse(line, _step_of(path)))
                except ValueError as error:
                    bad_lines.append(f"{path.name}, line {number}: {error}")
    except OSError as error:
        raise DumpError(f"{path}: cannot be read ({error.strerror}).") from None
    return DumpedStep(_step_of(path), rollouts, bad_lines)


def _parse(line: bytes, step: int) -> DumpedRollout:
    try:
        row = parse_json(line)
    except ValueError:
        raise ValueError("is not a whole line of JSON.") from None
    if not isinstance(row, dict):
        raise ValueError(f"expected a JSON object, got {type(row).__name__}.")
    if row.get("step", step) != step:
        raise ValueError(f"step: expected {step}, as the file is named, got {row['step']!r}.")
    prompt, response, score = _text(row, "input"), _text(row, "output"), row.get("score")
    if isinstance(score, bool) or not isinstance(score, int | float) or not abs(score) <= _MAX_SCORE:
        raise ValueError(f"score: expected a number, got {str(score)[:40]!r}.")
    answer = row.get("gts")
    return DumpedRollout(
        group=_group_of(row.get("uid"), prompt),
        prompt=prompt,
        response=response,
        answer="" if answer is None else str(answer),
        score=float(score),
    )


def _text(row: dict[str, Any], field: str) -> str:
    value = row.get(field)
    if not isinstance(value, str):
        raise ValueError(f"{field}: expected a text, got {str(value)[:40]!r}.")
    return value


def _group_of(uid: object, prompt: str) -> str:
    """Return the question's part of verl's `{question}_{rollout}_{output}`; older dumps have the prompt only."""
    parts = uid.rsplit("_", 2) if isinstance(uid, str) else []
    return parts[0] if len(parts) == 3 else prompt
