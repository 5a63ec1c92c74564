"""An evaluation's folder read back: what a model answered, a line with a checksum for each question."""

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, takewhile
from pathlib import Path
from typing import Annotated, Any, BinaryIO

from pydantic import BaseModel, Field, ValidationError

from exgrpo_core.bounded_json import UnreadableFileError, open_plain, seal, unseal
from exgrpo_core.faults import Fault, FaultKind

FOLDER = "evaluation"
"""Folder of the answers in an evaluation's run directory."""
SCHEMES = ("paper", "training")
"""How each answer is graded, in the order of a line's outcomes."""
_CORRECT = "correct"
_BENCHMARK = re.compile(r"\w+")
_MAX_LINE_BYTES = 256 << 20
"""A longer line, which no question needs, counts as damaged."""


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
    question: str
    gold: str


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """One sampled answer with its outcome by every scheme."""

    text: str
    num_tokens: int
    is_truncated: bool
    outcomes: dict[str, str]
    log_prob: float | None
    """Sum over its tokens, in nats; None where the generator gives none."""


@dataclass(frozen=True, slots=True)
class RecordedQuestion:
    """One question with its gold answer, as asked, and all sampled answers."""

    text: str
    gold: str
    answers: tuple[RecordedAnswer, ...]


@dataclass(frozen=True, slots=True)
class QuestionSummary:
    """One finished question in a list of many: of `num_samples` answers so many are correct by each scheme."""

    question_id: str
    text: str
    """Its beginning, on one line."""
    gold: str
    num_samples: int
    num_correct: dict[str, int]
    num_truncated: int
    mean_tokens: float


_LISTED_CHARACTERS = 200


def list_questions(run_path: Path, benchmark: str) -> list[QuestionSummary]:
    """Return the finished questions of a benchmark in recorded order; of several attempts the newest counts."""
    questions: dict[str, QuestionSummary] = {}
    if _BENCHMARK.fullmatch(benchmark) is not None:
        for path in list_files(run_path / FOLDER, benchmark):
            found = path.stat()
            questions |= _summarize(path, found.st_mtime_ns, found.st_size)
    return list(questions.values())


@lru_cache(maxsize=32)
def _summarize(path: Path, _changed_at: int, _size: int) -> dict[str, QuestionSummary]:
    lines = filter(None, map(_parse, read_lines(path)))
    return {line.question_id: _summary(line) for line in lines if line.samples}


def _summary(line: _Line) -> QuestionSummary:
    return QuestionSummary(
        line.question_id,
        " ".join(line.question[: 2 * _LISTED_CHARACTERS].split())[:_LISTED_CHARACTERS],
        line.gold[:_LISTED_CHARACTERS],
        len(line.samples),
        {scheme: sum(names[place] == _CORRECT for names in line.outcomes) for place, scheme in enumerate(SCHEMES)},
        sum(sample.is_truncated for sample in line.samples),
        sum(sample.num_tokens for sample in line.samples) / len(line.samples),
    )


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
            yield line.question_id, RecordedQuestion(line.question, line.gold, answers)


def find_answer_damage(run_path: Path, benchmark: str = "*") -> list[Fault]:
    """Return what is damaged of the recorded answers to a benchmark, or to all."""
    if benchmark != "*" and _BENCHMARK.fullmatch(benchmark) is None:
        return []
    return [fault for path in list_files(run_path / FOLDER, benchmark) for fault in _faults(path)]


def _faults(path: Path) -> list[Fault]:
    faults = find_damage(path)
    with contextlib.suppress(OSError, UnreadableFileError):  # named already
        num_others = sum(_parse(record) is None for record in read_lines(path))
        if num_others:
            details = f"{num_others} of its lines hold no answers"
            faults.append(Fault(FaultKind.UNREADABLE, f"{FOLDER}/{path.name}", details=details))
    return faults


def _parse(record: dict[str, Any]) -> _Line | None:
    """Return what a line holds, None of one without answers."""
    try:
        line = _Line.model_validate(record, strict=True)
    except ValidationError:
        return None
    return line if len(line.samples) == len(line.outcomes) else None


def _answer(sample: _Sample, outcomes: list[str]) -> RecordedAnswer:
    by_scheme = dict(zip(SCHEMES, outcomes, strict=True))
    return RecordedAnswer(sample.text, sample.num_tokens, sample.is_truncated, by_scheme, sample.log_prob)


def encode_line(record: Mapping[str, Any]) -> bytes:
    """Return the line of a finished question, newline included."""
    return seal(json.dumps(record).encode()) + b"\n"


def read_lines(path: Path, marker: bytes = b"") -> Iterator[dict[str, Any]]:
    """Yield the content of whole lines, none without the file; lines without `marker` are not parsed."""
    with contextlib.suppress(FileNotFoundError), open_plain(path) as file:
        for line in _lines(file):
            record = _decode(line) if marker in line else None
            if record is not None:
                yield record


def find_damage(path: Path) -> list[Fault]:
    """Return what is damaged of a file; a last line cut by a kill is not, and lines that are gone are not missed."""
    name = f"{path.parent.name}/{path.name}"
    try:
        with open_plain(path) as file:
            whole = list(takewhile(lambda line: line.endswith(b"\n"), _lines(file)))
    except (OSError, UnreadableFileError) as error:
        return [Fault(FaultKind.UNREADABLE, name, details=str(error).removeprefix(f"{path}: "))]
    starts = accumulate(map(len, whole), initial=0)
    return [
        Fault(FaultKind.DAMAGED_LINE, name, (start,))
        for start, line in zip(starts, whole, strict=False)
        if _decode(line) is None
    ]


def list_files(folder: Path, benchmark: str) -> list[Path]:
    """Return the files of a benchmark (`*`: of all), older attempts first."""
    return sorted(folder.glob(f"{benchmark}-*.jsonl"))


def _lines(file: BinaryIO) -> Iterator[bytes]:
    return iter(lambda: file.readline(_MAX_LINE_BYTES), b"")


def _decode(line: bytes) -> dict[str, Any] | None:
    """Return the content of a whole line, None of one that is damaged."""
    try:
        return unseal(line[:-1]) if line.endswith(b"\n") else None
    except UnreadableFileError:
        return None
