"""A benchmark's questions, complete and checked before anything is generated, from rows of any published layout."""

import hashlib
import json
import logging
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from exgrpo.jobs.evaluation.protocols import HubDataSet, Protocol, protocol_of
from exgrpo.jobs.specs.base import AnswerKind
from exgrpo.jobs.specs.evaluation import BenchmarkChoice, EvalSpec
from exgrpo.jobs.specs.train import TrainSpec
from exgrpo.jobs.tasks.grading.gold_answers import gold_notices
from exgrpo.jobs.tasks.questions import build_question, hash_question
from exgrpo.jobs.training import templates
from exgrpo.jobs.training.data_rows import (
    NO_NUMBERS,
    OPTION_LABEL,
    DataError,
    check_row,
    is_of_verl,
    iterate_raw_rows,
)
from exgrpo.jobs.training.dataset import normalized
from exgrpo.jobs.training.layouts import GoldReading, PlainRow, RawRow, decide_reading, gold_text, read_row
from exgrpo.jobs.training.templates import ControlTokenError, Message, PromptTokenizer, TemplateName, encode_messages
from exgrpo_core.engine import describe_misfit
from exgrpo_core.errors import shown
from exgrpo_core.types import Question

_HASH = re.compile(r"[0-9a-f]{16}")
_MAX_ROWS = 5
_MAX_ID_CHARS = 80
"""Longest question id that the database holds."""
logger = logging.getLogger(__name__)
FIRST_INDEX = 1_000_000_000
"""Indices of these questions are beyond those of every data set."""
_SEED = 2200
"""The draw is the same in every run."""


@dataclass(frozen=True, slots=True)
class BenchmarkQuestion:
    """One question with its gold answer; `num_rows` is how often an expanded file holds it."""

    question_id: str
    messages: tuple[Message, ...]
    answer: str
    answer_kind: AnswerKind
    num_rows: int = 1

    @property
    def text(self) -> str:
        """The question itself, without a template."""
        return self.messages[-1]["content"]


@dataclass(frozen=True, slots=True)
class LoadedBenchmark:
    """The questions to ask, how often to ask each, and what a user should know about the data."""

    protocol: Protocol
    choice: BenchmarkChoice
    questions: list[BenchmarkQuestion]
    samples_per_question: int
    notices: list[str]

    @property
    def data_hash(self) -> str:
        """16 hexadecimal digits that depend on questions and gold answers, in order, not on file or layout."""
        content = [(question.text.strip(), question.answer, question.answer_kind) for question in self.questions]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]

    def template(self, spec: EvalSpec) -> str:
        """Return the benchmark's own prompt template, else the evaluation's."""
        return self.choice.template or spec.template

    def temperature(self, spec: EvalSpec) -> float:
        """Return the benchmark's own sampling temperature, else the evaluation's."""
        return spec.temperature if self.choice.temperature is None else self.choice.temperature


@dataclass(slots=True)
class _Reading:
    """A source being read: what was noticed, and the rows whose `data_source` is another benchmark's."""

    origin: str
    protocol: Protocol
    index_from: Literal[0, 1] | None = None
    notices: list[str] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)

    def rows(self, source: str | None) -> list[tuple[int, BenchmarkQuestion]]:
        """Return (row number from 1, question); plain rows are read as the whole file shows."""
        read: dict[int, BenchmarkQuestion | PlainRow] = {}
        for number, raw in iterate_rows(source, self.protocol.hub):
            if not is_of_verl(raw):
                read[number] = read_row(number, raw, self.origin)
            elif self._is_meant(str(raw.get("data_source", ""))):
                row = check_row(self.origin, number, raw, self.protocol.answer_kind)
                read[number] = BenchmarkQuestion(row.question_id, row.messages, row.answer, row.answer_kind)
        reading = self._decide([row for row in read.values() if isinstance(row, PlainRow)])
        return [
            (number, self._question(row, reading) if isinstance(row, PlainRow) else row) for number, row in read.items()
        ]

    def _decide(self, rows: Sequence[PlainRow]) -> GoldReading | None:
        """Return how gold answers name options, and note how the first row is read."""
        if not rows:
            return None
        first = next((row for row in rows if row.options), rows[0])
        gold, reading = f"`{first.gold_field}`", None
        if first.options and self.protocol.answer_kind != "math":
            reading = decide_reading(rows, self.origin, self.index_from)
            gold = f"{first.label(reading)}, read from {gold} as {reading.value}"
        else:
            gold = f"{first.gold!r:.60}, read from {gold}"
        asked = f"options {first.options[0][0]} to {first.options[-1][0]}" if first.options else "no options"
        self.notices.append(f"{self.origin}, row {first.number}: asked with {asked}; the gold answer is {gold}.")
        return reading

    def _question(self, row: PlainRow, reading: GoldReading | None) -> BenchmarkQuestion:
        kind = self.protocol.answer_kind
        if kind == "auto":
            kind = "choice" if row.options else "math"
        has_label = kind == "choice" and row.options and reading is not None
        answer = (row.label(reading) or "") if has_label and reading else gold_text(row.gold)
        where = f"{self.origin}, row {row.number}"
        if not row.question.strip():
            raise DataError(f"{where}: expected a question, got {shown(row.question)}.")
        if not answer or (kind == "math" and answer.casefold() in NO_NUMBERS):
            raise DataError(f"{where}, {row.gold_field}: expected a gold answer, got {shown(row.gold)}.")
        if kind == "choice" and OPTION_LABEL.fullmatch(answer) is None:
            raise DataError(
                f"{where}, {row.gold_field}: expected an option's label as gold answer, got {answer[:60]!r}; "
                "correct it, or grade by answer_kind math."
            )
        if row.odd:
            self.notices.append(f"{where}: {row.odd}.")
        identity = row.identity
        if identity is None or len(identity) > _MAX_ID_CHARS:
            identity = hash_question(self.protocol.name, row.text, answer)
        return BenchmarkQuestion(identity, ({"role": "user", "content": row.text},), answer, kind)

    def _is_meant(self, data_source: str) -> bool:
        names = self.protocol.data_sources
        if not names or data_source.lower().replace("-", "_") in names:
            return True
        self.left_out[data_source] += 1
        return False


def load_benchmark(choice: BenchmarkChoice, protocol: Protocol) -> LoadedBenchmark:
    """Read and check a benchmark; equal rows, as in expanded Avg@32 files, are one question asked several times.

    Raises:
        DataError: Wrong counts, repeated questions, duplicate ids, missing or contradictory gold answers, or an
            unreadable source.
    """
    origin = Path(choice.source).name if choice.source else protocol.hub.name if protocol.hub else protocol.name
    reading = _Reading(origin, protocol, choice.index_from)
    rows_of: dict[str, list[int]] = {}
    questions = _merge(origin, reading.rows(choice.source), rows_of)
    _check_repetition(origin, rows_of, protocol)
    _check_count(reading, len(questions), choice)
    chosen = questions[: choice.num_questions]
    num_samples = choice.samples_per_question or protocol.samples_per_question
    to_compute = [item for item in chosen if item.answer_kind == "math"]
    golds = [(f"row {rows_of[item.question_id][0]}", item.answer) for item in to_compute]
    notices = [*reading.notices, *_repeat_notices(origin, questions), *gold_notices(origin, golds)]
    if len(chosen) < len(questions):
        notices.append(f"{origin}: {len(chosen):,} of {len(questions):,} questions are asked, the first ones.")
    return LoadedBenchmark(protocol, choice, chosen, num_samples, notices)


def _repeat_notices(origin: str, questions: Iterable[BenchmarkQuestion]) -> list[str]:
    """Return a notice where questions with different ids ask the same."""
    golds: dict[str, list[str]] = {}
    for question in questions:
        golds.setdefault(normalized(question.text), []).append(question.answer)
    num_again = sum(len(answers) - 1 for answers in golds.values())
    num_odd = sum(len(set(answers)) > 1 for answers in golds.values())
    if not num_again:
        return []
    return [
        f"{origin}: {num_again:,} questions are asked again under another id, {num_odd:,} of them with another gold "
        "answer; each of them counts."
    ]


def _check_count(reading: _Reading, num_questions: int, choice: BenchmarkChoice) -> None:
    """Refuse a source that holds fewer questions than asked for, or of the paper's benchmarks another number."""
    protocol, least = reading.protocol, choice.num_questions or 1
    is_as_declared = protocol.num_questions in {None, num_questions}
    if is_as_declared and num_questions >= least:
        return
    expected = f"{least:,} or more" if is_as_declared else f"{protocol.num_questions:,}"
    left_out = ""
    if reading.left_out and not is_as_declared:
        names = ", ".join(f"{name[:40]!r} ({_in_rows(count)})" for name, count in reading.left_out.most_common(3))
        left_out = f"; its data_source is {names} where {' or '.join(protocol.data_sources)} counts"
    advice = "lower the number of questions" if is_as_declared and num_questions else "give the benchmark's whole file"
    if not is_as_declared and choice.source is not None:
        advice += f", or score other data under a name of its own, as in mine={reading.origin}"
    raise DataError(
        f"{reading.origin}: holds {num_questions:,} questions of {protocol.name}, expected {expected}{left_out}; "
        f"{advice}."
    )


def _merge(
    origin: str, rows: Iterable[tuple[int, BenchmarkQuestion]], rows_of: dict[str, list[int]]
) -> list[BenchmarkQuestion]:
    """Return the distinct questions in order; `rows_of` receives the rows of each, by id."""
    questions: dict[str, BenchmarkQuestion] = {}
    rows_of_hashed: dict[str, tuple[int, str]] = {}
    for number, question in rows:
        first = questions.setdefault(question.question_id, question)
        if (first.text, first.answer) != (question.text, question.answer):
            raise DataError(
                f"{origin}, row {number}: id {question.question_id} is another question's already, in row "
                f"{rows_of[question.question_id][0]}; give each question an id of its own."
            )
        rows_of.setdefault(question.question_id, []).append(number)
        if _HASH.fullmatch(question.question_id):
            # Ids made of the content differ where golds do, so contradictions show in the text alone.
            row, answer = rows_of_hashed.setdefault(normalized(question.text), (number, question.answer))
            if answer != question.answer:
                raise DataError(
                    f"{origin}, row {number}: gold {question.answer[:60]!r} contradicts {answer[:60]!r} of row {row}, "
                    "which asks the same question; remove one of them."
                )
    return [replace(item, num_rows=len(rows_of[item.question_id])) for item in questions.values()]


def _check_repetition(origin: str, rows_of: Mapping[str, Sequence[int]], protocol: Protocol) -> None:
    """Refuse questions that are neither in one row each nor each in as many as the protocol samples."""
    counts = Counter(len(rows) for rows in rows_of.values())
    allowed = {1, protocol.samples_per_question}
    usual = max(allowed, key=lambda count: counts[count])
    odd = next((rows for rows in rows_of.values() if len(rows) != usual), None)
    if odd is None:
        return
    raise DataError(
        f"{origin}, row {odd[-1]}: its question is in {_in_rows(len(odd))} ({', '.join(map(str, odd[:_MAX_ROWS]))}), "
        f"expected each question in {' or each in '.join(_in_rows(count) for count in sorted(allowed))}"
        f"{', as samples_per_question says' if len(allowed) > 1 else ''}; remove or add rows."
    )


def _in_rows(count: int) -> str:
    return "one row" if count == 1 else f"{count:,} rows"


def iterate_rows(source: str | None, hub: HubDataSet | None) -> Iterator[tuple[int, RawRow]]:
    """Yield (row number from 1, row) of a file, of a named data set, or of the protocol's own one.

    Raises:
        DataError: The source cannot be read; the message names it.
    """
    if source is not None:
        yield from iterate_raw_rows(source, "test" if hub is None else hub.split, None)
    elif hub is not None:
        yield from iterate_raw_rows(hub.name, hub.split, None, hub.config)


def refuse_control_tokens(benchmarks: Iterable[LoadedBenchmark], tokenizer: PromptTokenizer) -> None:
    """Refuse benchmarks with a question that holds a control token of the model.

    Raises:
        DataError: The message names benchmark and question.
    """
    for benchmark in benchmarks:
        for question in benchmark.questions:
            try:
                templates.refuse_control_tokens(question.messages, tokenizer)
            except ControlTokenError as error:
                raise DataError(f"{benchmark.protocol.name}, question {question.question_id}: {error}") from None


def read_validation_questions(spec: TrainSpec, tokenizer: PromptTokenizer) -> dict[str, list[Question]]:
    """Return the questions of `validation.benchmarks`, each in its own template, else in that of the training data.

    Prompts longer than the longest allowed are left out, with a warning.

    Raises:
        DataError: A benchmark cannot be read or is not what its protocol says, or the model has not its template.
    """
    chosen: list[tuple[str, BenchmarkQuestion]] = []
    for name, benchmark in spec.validation.benchmarks.items():
        choice = BenchmarkChoice(name=name, **dict(benchmark))
        chosen += [(name, question) for question in load_benchmark(choice, protocol_of(choice)).questions]
    num_wanted = spec.validation.num_benchmark_questions
    if num_wanted is not None and num_wanted < len(chosen):
        chosen = [chosen[index] for index in sorted(random.Random(_SEED).sample(range(len(chosen)), num_wanted))]
    questions: dict[str, list[Question]] = {name: [] for name in spec.validation.benchmarks}
    for index, (name, item) in enumerate(chosen, start=FIRST_INDEX):
        template = TemplateName(spec.validation.benchmarks[name].template or spec.data.template)
        try:
            text, prompt_ids = encode_messages(template, item.messages, tokenizer)
        except ControlTokenError as error:
            raise DataError(f"{name}, question {item.question_id}: {error}") from None
        except ValueError as error:
            raise DataError(f"validation.benchmarks.{name}.{error}") from error
        prompt = f"question {item.question_id}", len(prompt_ids)
        if misfit := describe_misfit([prompt], spec.algorithm.max_prompt_tokens):
            logger.warning("%s: %s; it is left out.", name, misfit)
            continue
        metadata = {"data_source": name, "answer_kind": item.answer_kind, "question": item.text}
        questions[name].append(build_question(index, item.question_id, text, item.answer, prompt_ids, metadata))
    return questions
