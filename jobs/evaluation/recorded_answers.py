"""An evaluation's folder: what a model answered, written and read back, a line with a checksum for each question."""

import contextlib
import hashlib
import json
import logging
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import accumulate, takewhile
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
from pydantic import TypeAdapter, ValidationError

from exgrpo.jobs.evaluation.benchmark_questions import BenchmarkQuestion, LoadedBenchmark
from exgrpo.jobs.evaluation.generation import Sample
from exgrpo.jobs.specs.evaluation import EvalSpec
from exgrpo.jobs.tasks.grading.answer_grader import Scheme, SideBySide, grader_version
from exgrpo.jobs.tasks.grading.reward_function import Grade, Response, Verdict
from exgrpo.jobs.training.reward_parts import RewardParts
from exgrpo_core.bounded_json import UnreadableFileError, open_plain, seal, unseal
from exgrpo_core.faults import Fault, FaultKind, describe_fault
from exgrpo_core.types import Question

FOLDER = "evaluation"
"""Folder of the answers in an evaluation's run directory."""
_BENCHMARK = re.compile(r"\w+")
_MAX_LINE_BYTES = 256 << 20
"""A longer line, which no question needs, counts as damaged."""


@dataclass(frozen=True, slots=True)
class AnsweredQuestion:
    """One finished question: its samples, their outcomes by every scheme, the seed, and the grader that decided."""

    question_id: str
    question: str
    gold: str
    seed: int
    samples: list[Sample]
    outcomes: list[SideBySide]
    grader_version: str = ""


_ANSWERED = TypeAdapter(AnsweredQuestion)
"""Reads what a line holds: one of an imported run may be anything under a right checksum."""


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


def _summary(line: AnsweredQuestion) -> QuestionSummary:
    return QuestionSummary(
        line.question_id,
        " ".join(line.question[: 2 * _LISTED_CHARACTERS].split())[:_LISTED_CHARACTERS],
        line.gold[:_LISTED_CHARACTERS],
        len(line.samples),
        {scheme.value: sum(getattr(sides, scheme) is Grade.CORRECT for sides in line.outcomes) for scheme in Scheme},
        sum(sample.is_truncated for sample in line.samples),
        sum(sample.num_tokens for sample in line.samples) / len(line.samples),
    )


def find_answers(run_path: Path, benchmark: str, question_id: str) -> AnsweredQuestion | None:
    """Return the answers to a question, None where it was not finished; of several attempts the newest counts."""
    newest = None
    for name, question in iterate_answers(run_path, benchmark, json.dumps(question_id).encode()):
        newest = question if name == question_id else newest
    return newest


def iterate_answers(run_path: Path, benchmark: str, marker: bytes = b"") -> Iterator[tuple[str, AnsweredQuestion]]:
    """Yield finished questions with their ids, those of newer attempts later; lines without `marker` are not parsed."""
    if _BENCHMARK.fullmatch(benchmark) is None:
        return
    for path in list_files(run_path / FOLDER, benchmark):
        for line in filter(None, map(_parse, read_lines(path, marker))):
            yield line.question_id, line


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


def _parse(record: dict[str, Any]) -> AnsweredQuestion | None:
    """Return what a line holds, None of one without answers."""
    try:
        line = _ANSWERED.validate_python(record)
    except ValidationError:
        return None
    return line if len(line.samples) == len(line.outcomes) else None


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


logger = logging.getLogger(__name__)


class AnswerLog:
    """The answers to one benchmark in one run. One writer; what `append` returned from survives a kill -9."""

    def __init__(self, run_path: Path, benchmark: str, attempt: int) -> None:
        self._folder = run_path / FOLDER
        self._benchmark = benchmark
        self._path = self._folder / f"{benchmark}-{attempt:04d}.jsonl"
        self._file: IO[bytes] | None = None

    def read(self) -> dict[str, AnsweredQuestion]:
        """Return all finished questions by id, whichever attempt finished them; the newest line counts."""
        answers: dict[str, AnsweredQuestion] = {}
        for path in list_files(self._folder, self._benchmark):
            for fault in find_damage(path):
                logger.warning("%s Questions without answers are asked again.", describe_fault(fault))
            for record in read_lines(path):
                if answered := _parse(record):
                    answers[answered.question_id] = answered
                else:
                    logger.warning("%s: holds a line without answers; its question is asked again.", path)
        return answers

    def append(self, answered: AnsweredQuestion) -> None:
        """Write one finished question, with its text and gold answer."""
        if self._file is None:
            self._folder.mkdir(exist_ok=True)
            self._file = self._path.open("ab", buffering=0)
        self._file.write(encode_line(asdict(answered)))

    def sync(self) -> None:
        """Put what was appended on disk."""
        if self._file is not None:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file; a second time changes nothing."""
        if self._file is not None:
            self.sync()
            self._file.close()
            self._file = None


_NO_TOKENS = np.empty(0, dtype=np.int32)


def comparability(spec: EvalSpec, benchmark: LoadedBenchmark) -> dict[str, Any]:
    """Return all that two scores have to share to be compared: data, template, grader and sampling."""
    return {
        "data_hash": benchmark.data_hash,
        "template": benchmark.template(spec),
        "grader_version": grader_version(),
        "samples_per_question": benchmark.samples_per_question,
        "temperature": benchmark.temperature(spec),
        "top_p": spec.top_p,
        "max_response_tokens": spec.max_response_tokens,
    }


def comparability_key(parts: Mapping[str, Any]) -> str:
    """Return 12 hexadecimal digits that are equal where all parts are."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]


def benchmark_event(
    spec: EvalSpec, benchmark: LoadedBenchmark, answers: Mapping[str, AnsweredQuestion], seconds: float
) -> dict[str, Any]:
    """Return what is recorded of a finished benchmark."""
    parts = comparability(spec, benchmark)
    ordered = [answers[question.question_id] for question in benchmark.questions]
    samples = [sample for item in ordered for sample in item.samples]
    return {
        "benchmark": benchmark.protocol.name,
        "title": benchmark.protocol.title,
        "comparability": parts,
        "comparability_key": comparability_key(parts),
        "samples_per_question": benchmark.samples_per_question,
        "question_ids": [entry.question_id for entry in ordered],
        "num_correct": {
            scheme.value: [
                sum(getattr(outcome, scheme) is Grade.CORRECT for outcome in item.outcomes) for item in ordered
            ]
            for scheme in Scheme
        },
        "outcomes": {
            scheme.value: dict(
                Counter(str(getattr(side, scheme)) for answered in ordered for side in answered.outcomes)
            )
            for scheme in Scheme
        },
        "mean_tokens": sum(sample.num_tokens for sample in samples) / len(samples),
        "truncated_share": sum(sample.is_truncated for sample in samples) / len(samples),
        "notices": [*benchmark.notices, *repetition_notices(spec, benchmark, answers)],
        "seconds": seconds,
        "model": spec.model.source,
        "source_run_id": spec.model.run_id,
        "source_step": spec.model.step,
    }


def repetition_notices(
    spec: EvalSpec, benchmark: LoadedBenchmark, answers: Mapping[str, AnsweredQuestion]
) -> list[str]:
    """Return a notice where all samples of each question are one text, as of a server that draws with one seed."""
    is_greedy, num_samples = benchmark.temperature(spec) == 0, benchmark.samples_per_question
    asked = [answers[question.question_id] for question in benchmark.questions]
    if is_greedy or num_samples == 1 or any(len({sample.text for sample in item.samples}) > 1 for item in asked):
        return []
    advice = (
        "raise the temperature if the model is so sure"
        if spec.server is None
        else "look whether the server gives every answer to a request the same seed"
    )
    return [
        f"The {num_samples} answers to each question are the same text, so Pass@k and the interval say too much; "
        f"{advice}."
    ]


def reward_means(
    parts: RewardParts, questions: Sequence[BenchmarkQuestion], answers: Mapping[str, AnsweredQuestion]
) -> dict[str, float]:
    """Return the mean of each part by its name; the answer is right where `training` says so."""
    graded = [
        (
            Question(index, item.question_id, _NO_TOKENS, item.text, item.answer, {"question": item.text}),
            Response(sample.text, _NO_TOKENS, sample.is_truncated),
            Verdict(float(sides.training is Grade.CORRECT), sides.training.value),
        )
        for index, item in enumerate(questions)
        for sample, sides in zip(answers[item.question_id].samples, answers[item.question_id].outcomes, strict=True)
    ]
    asked, responses, verdicts = (list(column) for column in zip(*graded, strict=True))
    parts.weigh(asked, responses, verdicts)
    return parts.take_means()
