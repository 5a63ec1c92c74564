"""A benchmark's questions, complete and checked before anything is generated."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from jobs.evaluation.protocols import Protocol
from jobs.evaluation.raw_rows import RawRow, iterate_rows, read_plain_row
from jobs.specs.evaluation import BenchmarkChoice
from jobs.tasks.questions import hash_question
from jobs.training.data_rows import DataError, check_row
from jobs.training.templates import Message

_LABEL = re.compile(r"[A-J1-9]")
_HASH = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class BenchmarkQuestion:
    """One question with its gold answer; `num_rows` is how often an expanded file holds it."""

    question_id: str
    messages: tuple[Message, ...]
    answer: str
    answer_kind: Literal["math", "choice"]
    num_rows: int = 1

    @property
    def text(self) -> str:
        """The question itself, without a template."""
        return self.messages[-1]["content"]


@dataclass(frozen=True, slots=True)
class LoadedBenchmark:
    """The questions to ask, how often to ask each, and what a user should know about the data."""

    protocol: Protocol
    questions: list[BenchmarkQuestion]
    samples_per_question: int
    notices: list[str]

    @property
    def data_hash(self) -> str:
        """16 hexadecimal digits that depend on questions and gold answers, in order, not on file or layout."""
        content = [(question.text.strip(), question.answer, question.answer_kind) for question in self.questions]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def load_benchmark(choice: BenchmarkChoice, protocol: Protocol) -> LoadedBenchmark:
    """Read and check a benchmark; equal rows, as in expanded Avg@32 files, are one question asked several times.

    Raises:
        DataError: Wrong counts, duplicate ids, missing or contradictory gold answers, or an unreadable source.
    """
    origin = Path(choice.source).name if choice.source else protocol.hub.name
    notices: list[str] = []
    questions = _merge(origin, _read(origin, choice.source, protocol, notices))
    if len(questions) != protocol.num_questions:
        raise DataError(
            f"{origin}: holds {len(questions):,} questions of {protocol.name}, expected {protocol.num_questions:,}; "
            "give the benchmark's whole file."
        )
    _check_expansion(origin, questions, protocol)
    wanted = questions[: choice.num_questions]
    return LoadedBenchmark(protocol, wanted, choice.samples_per_question or protocol.samples_per_question, notices)


def _read(
    origin: str, source: str | None, protocol: Protocol, notices: list[str]
) -> Iterator[tuple[int, BenchmarkQuestion]]:
    for number, raw in iterate_rows(source, protocol.hub):
        if "reward_model" in raw or "data_source" in raw:
            if str(raw.get("data_source", "")).lower().replace("-", "_") in protocol.data_sources:
                yield number, _from_schema(origin, number, raw, protocol)
        else:
            yield number, _from_columns(origin, number, raw, protocol, notices)


def _from_schema(origin: str, number: int, raw: RawRow, protocol: Protocol) -> BenchmarkQuestion:
    row = check_row(origin, number, raw, protocol.answer_kind)
    return BenchmarkQuestion(row.question_id, row.messages, row.answer, row.answer_kind)


def _from_columns(origin: str, number: int, raw: RawRow, protocol: Protocol, notices: list[str]) -> BenchmarkQuestion:
    identity, text, gold, odd = read_plain_row(raw, origin)
    place = f"{origin}, row {number}"
    answer = _as_text(gold)
    if not text.strip() or not answer:
        raise DataError(f"{place}: expected a question and its gold answer, got {gold!r}.")
    if protocol.answer_kind == "choice" and _LABEL.fullmatch(answer) is None:
        raise DataError(f"{place}: expected an option's label as gold answer, got {answer[:60]!r}.")
    if odd:
        notices.append(f"{place}: {odd}.")
    question_id = identity or hash_question(protocol.name, text, answer)
    messages: tuple[Message, ...] = ({"role": "user", "content": text},)
    return BenchmarkQuestion(question_id, messages, answer, protocol.answer_kind)


def _as_text(gold: object) -> str:
    """Return a gold answer as text; data sets that hold whole numbers as floats mean whole numbers."""
    if isinstance(gold, float) and gold.is_integer():
        return str(int(gold))
    return str(gold).strip() if isinstance(gold, (str, int, float)) and not isinstance(gold, bool) else ""


def _merge(origin: str, rows: Iterable[tuple[int, BenchmarkQuestion]]) -> list[BenchmarkQuestion]:
    """Return the distinct questions in order, each with the number of its rows."""
    found: dict[str, BenchmarkQuestion] = {}
    counts: Counter[str] = Counter()
    rows_of_hashed: dict[str, tuple[int, str]] = {}
    for number, question in rows:
        first = found.setdefault(question.question_id, question)
        if (first.text, first.answer) != (question.text, question.answer):
            raise DataError(f"{origin}, row {number}: id {question.question_id} stands for another question already.")
        counts[question.question_id] += 1
        if _HASH.fullmatch(question.question_id):
            # Ids made of the content differ where golds do, so contradictions show in the text alone.
            row, answer = rows_of_hashed.setdefault(question.text, (number, question.answer))
            if answer != question.answer:
                raise DataError(
                    f"{origin}, row {number}: gold {question.answer[:60]!r} contradicts {answer[:60]!r} of row {row}, "
                    "which asks the same question; remove one of them."
                )
    return [replace(item, num_rows=counts[item.question_id]) for item in found.values()]


def _check_expansion(origin: str, questions: list[BenchmarkQuestion], protocol: Protocol) -> None:
    """Refuse questions that stand there neither once nor as often as the protocol samples them."""
    allowed = {1, protocol.samples_per_question}
    if len({item.num_rows for item in questions}) > 1 or questions[0].num_rows not in allowed:
        odd = next(
            question
            for question in questions
            if question.num_rows not in allowed or question.num_rows != questions[0].num_rows
        )
        raise DataError(
            f"{origin}: question {odd.question_id} of {protocol.name} stands there {odd.num_rows} times, expected all "
            f"{' or '.join(str(count) for count in sorted(allowed))} times."
        )
