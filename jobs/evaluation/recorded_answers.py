"""An evaluation's folder read back: what a model answered."""

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError

from exgrpo_core.bounded_json import UnreadableFileError
from jobs.evaluation.answer_lines import find_damage, list_files, read_lines

FOLDER = "evaluation"
"""Folder of the answers in an evaluation's run directory."""
_BENCHMARK = re.compile(r"\w+")


class _Sample(BaseModel):
    text: str
    num_tokens: int
    is_truncated: bool
    log_prob: float | None = None


class _Line(BaseModel):
    """What a line must hold: one of an imported run may be anything under a right checksum."""

    question_id: str
    seed: int
    samples: list[_Sample]
    outcomes: list[Annotated[list[str], Field(min_length=2, max_length=2)]]
    question: str = ""
    gold: str = ""
    answer_kind: str | None = None


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """One sampled answer with its outcome by every scheme."""

    text: str
    num_tokens: int
    is_truncated: bool
    outcomes: dict[str, str]
    log_prob: float | None
    """Sum over its tokens, in nats; None in logs without it."""


@dataclass(frozen=True, slots=True)
class RecordedQuestion:
    """One question with its gold answer, as asked, and all sampled answers; texts are empty in logs without them."""

    text: str
    gold: str
    answers: tuple[RecordedAnswer, ...]
    seed: int
    answer_kind: str | None
    """Math or choice, None in logs without it."""


def find_answers(run_path: Path, benchmark: str, question_id: str) -> RecordedQuestion | None:
    """Return the answers to a question, None where it was not finished; of several attempts the newest counts."""
    newest = None
    for name, question in iterate_answers(run_path, benchmark, json.dumps(question_id).encode()):
        newest = question if name == question_id else newest
    return newest


def iterate_answers(run_path: Path, benchmark: str, marker: bytes = b"") -> Iterator[tuple[str, RecordedQuestion]]:
    """Yield finished questions with their ids, those of newer attempts later; lines without `marker` are not parsed."""
    if _BENCHMARK.fullmatch(benchmark) is None:
        return
    for path in list_files(run_path / FOLDER, benchmark):
        for line in filter(None, map(_parse, read_lines(path, marker))):
            answers = tuple(map(_answer, line.samples, line.outcomes))
            yield line.question_id, RecordedQuestion(line.question, line.gold, answers, line.seed, line.answer_kind)


def find_answer_damage(run_path: Path, benchmark: str = "*") -> list[str]:
    """Return a sentence on each damage of the recorded answers to a benchmark, or to all, that begins with the file."""
    if benchmark != "*" and _BENCHMARK.fullmatch(benchmark) is None:
        return []
    return [f"{FOLDER}/{fault}" for path in list_files(run_path / FOLDER, benchmark) for fault in _faults(path)]


def _faults(path: Path) -> list[str]:
    faults = find_damage(path)
    with contextlib.suppress(OSError, UnreadableFileError):  # named already
        num_others = sum(_parse(record) is None for record in read_lines(path))
        if num_others:
            faults.append(f"{path.name}: {num_others} of its lines hold no answers.")
    return faults


def _parse(record: dict[str, Any]) -> _Line | None:
    """Return what a line holds, None of one without answers."""
    try:
        line = _Line.model_validate(record, strict=True)
    except ValidationError:
        return None
    return line if len(line.samples) == len(line.outcomes) else None


def _answer(sample: _Sample, outcomes: list[str]) -> RecordedAnswer:
    names = ("paper", "training")
    by_scheme = dict(zip(names, outcomes, strict=True))
    return RecordedAnswer(sample.text, sample.num_tokens, sample.is_truncated, by_scheme, sample.log_prob)
