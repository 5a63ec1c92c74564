"""Training data: rows in verl's schema or a published layout become questions, or an error names the bad row."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from exgrpo.jobs.specs.base import DeclaredKind
from exgrpo.jobs.specs.train import DataSpec
from exgrpo.jobs.tasks.grading.gold_answers import gold_notices
from exgrpo.jobs.tasks.questions import build_question
from exgrpo.jobs.training.data_rows import COLUMNS, DataError, DataRow, RawRow, iterate_raw_rows, no_rows
from exgrpo.jobs.training.demonstration_turns import one_text, read_turns
from exgrpo.jobs.training.layouts import training_row
from exgrpo.jobs.training.templates import (
    ControlTokenError,
    PromptTokenizer,
    TemplateName,
    encode_messages,
)
from exgrpo_core.engine import describe_misfit
from exgrpo_core.errors import NUM_TOLD, first_few
from exgrpo_core.types import Question

_RAISED = re.compile(r"([\u00b2\u00b3\u00b9\u00bc-\u00be\u2070-\u209c\u2150-\u215e\u2189]+)")
"""Superscripts, subscripts and fractions."""
_INVISIBLE = dict.fromkeys(map(ord, "\u00ad\u200b\u2060\ufeff"))


@dataclass(frozen=True, slots=True)
class DataSource:
    """The source of questions and their prompt template."""

    source: str
    """Parquet or JSON-lines file, folder of a saved data set, or Hugging Face data set name."""
    split: str = "train"
    """Split of a Hugging Face data set."""
    template: TemplateName = TemplateName.PAPER
    num_questions: int | None = None
    """How many questions, the first ones; None takes all."""
    answer_kind: DeclaredKind = "auto"
    """How answers are graded; `auto` takes choice for known multiple-choice benchmarks, else math."""
    too_long_prompts: Literal["refuse", "drop"] = "refuse"
    response_column: str | None = None
    """Column with responses, which are checked with their rows."""
    is_imitated: bool = False
    """Whether a response is a demonstration, which no row may lack, and not an off-policy trajectory."""

    @classmethod
    def of(cls, data: DataSpec) -> "DataSource":
        """Return the source that a specification names."""
        num_all = None if data.num_questions is None else data.num_questions + data.num_held_out
        template = TemplateName(data.template)
        return cls(data.source, data.split, template, num_all, data.answer_kind, data.too_long_prompts)

    @property
    def origin(self) -> str:
        """The name in messages: a file's or the data set's."""
        return Path(self.source).name if Path(self.source).exists() else self.source


@dataclass(frozen=True, slots=True)
class Rows:
    """The distinct, checked rows of a source, and notices to the user about merged or dropped rows."""

    rows: list[DataRow]
    notices: list[str]
    responses: dict[int, str] = field(default_factory=dict)
    """Of each row with a response, by number: why it cannot be trained, "" if it can."""


def read_rows(source: DataSource, *, is_cached: bool = False) -> Rows:
    """Read and check every row of the source; equal rows (as in expanded Avg@32 files) become one.

    With `is_cached` a data set of the hub is read as it was loaded before on this machine.

    Raises:
        DataError: The source cannot be read, rows are bad, or two rows give one question different answers.
    """
    wrong: list[str] = []
    responses: dict[int, str] = {}
    column = source.response_column

    def checked() -> Iterator[DataRow]:
        columns = COLUMNS if column is None else (*COLUMNS, column)
        for number, raw in iterate_raw_rows(source.source, source.split, columns, is_cached=is_cached):
            try:
                row = training_row(source.origin, number, raw, source.answer_kind)
            except DataError as error:
                wrong.append(str(error) if len(wrong) < NUM_TOLD else "")
                continue
            if column is not None and (source.is_imitated or raw.get(column)):
                responses[number] = _response_fault(source, row, raw)
            yield row

    rows, num_rows = _merge_equal_rows(source.origin, checked())
    if wrong:
        raise DataError(first_few(wrong, len(wrong)))
    if not rows:
        raise no_rows(source.origin)
    notices = gold_notices(
        source.origin, [(f"row {row.number}", row.answer) for row in rows if row.answer_kind == "math"]
    )
    if num_rows != len(rows):
        notices.append(f"{source.origin}: {num_rows:,} rows hold {len(rows):,} questions; equal rows were merged.")
    return Rows(rows, notices, responses)


def _response_fault(source: DataSource, row: DataRow, raw: RawRow) -> str:
    label = f"{source.origin}, row {row.number}, {source.response_column}"
    try:
        turns = read_turns(raw.get(source.response_column or ""), row.messages, label)
        if not source.is_imitated:
            one_text(turns, label)
    except DataError as error:
        return str(error)
    return ""


def encode_rows(
    rows: Rows, source: DataSource, tokenizer: PromptTokenizer, max_prompt_tokens: int
) -> tuple[list[Question], Rows]:
    """Return the first questions of `rows`, numbered from 0, and their rows with further notices.

    Raises:
        DataError: Prompts are too long and not to be dropped, or there are fewer questions than needed.
    """
    num_wanted = len(rows.rows) if source.num_questions is None else source.num_questions
    kept: list[DataRow] = []
    questions: list[Question] = []
    left_out: list[tuple[str, int]] = []
    for row in rows.rows:
        if len(questions) == num_wanted:
            break
        try:
            text, prompt_ids = encode_messages(source.template, row.messages, tokenizer)
        except ControlTokenError as error:
            raise DataError(f"{source.origin}, row {row.number}, prompt: {error}") from None
        prompt = f"row {row.number}", len(prompt_ids)
        if describe_misfit([prompt], max_prompt_tokens):
            left_out.append(prompt)
            continue
        questions.append(_question(len(questions), row, text, prompt_ids))
        kept.append(row)
    notices = [*rows.notices, *_left_out_notice(source, describe_misfit(left_out, max_prompt_tokens))]
    notices += use_notices(source, len(questions), len(rows.rows) - len(left_out))
    prompts = zip(kept, questions, strict=True)
    num_system = sum(row.system_text.strip() not in question.prompt_text for row, question in prompts)
    notices += system_notices(source, num_system)
    check_count(source, len(questions))
    if not questions:
        raise DataError(f"{source.origin}: no prompt fits into max_prompt_tokens = {max_prompt_tokens}; raise it.")
    return questions, Rows(kept, notices)


def use_notices(source: DataSource, num_used: int, num_questions: int) -> list[str]:
    """Return a notice where not all questions are used."""
    if num_used >= num_questions:
        return []
    return [
        f"{source.origin}: {num_used:,} of {num_questions:,} questions are used, as data.num_questions and "
        "data.num_held_out say."
    ]


def system_notices(source: DataSource, num_questions: int) -> list[str]:
    """Return a notice on so many questions whose system message is not in the prompt."""
    if not num_questions:
        return []
    return [
        f"{source.origin}: {num_questions:,} questions have a system message, which the template {source.template} "
        "does not use."
    ]


def check_count(source: DataSource, num_usable: int) -> None:
    """Refuse a source with fewer questions than are asked for.

    Raises:
        DataError: It has fewer.
    """
    if source.num_questions is not None and num_usable < source.num_questions:
        raise DataError(
            f"{source.origin}: has too few usable questions: {num_usable:,}, expected {source.num_questions:,}, which "
            "data.num_questions and data.num_held_out are together; lower one of them."
        )


def encode_made(
    made: Sequence[Question], source: DataSource, tokenizer: PromptTokenizer, max_prompt_tokens: int
) -> list[Question]:
    """Return questions of a built-in task as user messages in the template, with their metadata.

    Raises:
        DataError: A prompt is too long.
    """
    rows = [
        DataRow(
            question.index + 1, question.question_id, source.source, "math",
            ({"role": "user", "content": question.prompt_text},), question.answer, "math",
        )
        for question in made
    ]  # fmt: skip
    encoded, _ = encode_rows(Rows(rows, []), source, tokenizer, max_prompt_tokens)
    pairs = zip(encoded, made, strict=True)
    return [replace(question, metadata={**question.metadata, **origin.metadata}) for question, origin in pairs]


def _merge_equal_rows(origin: str, rows: Iterable[DataRow]) -> tuple[list[DataRow], int]:
    merged: dict[str, DataRow] = {}
    num_rows = 0
    for row in rows:
        num_rows += 1
        key = normalized(row.question_text)
        first = merged.get(key)
        if first is not None and first.answer != row.answer:
            raise DataError(
                f"{origin}, row {row.number}, reward_model.ground_truth: {row.answer[:60]!r} contradicts "
                f"{first.answer[:60]!r} of row {first.number}, which asks the same question; remove one of them."
            )
        merged[key] = row if first is None else replace(first, num_rows=first.num_rows + 1)
    return list(merged.values()), num_rows


def normalized(text: str) -> str:
    """Return a question as it is compared: without differences in white space and in Unicode's forms.

    Powers, indices and fractions stay as they are: three squared is not 32.
    """
    if text.isascii():
        return " ".join(text.split())
    parts = _RAISED.split(text.translate(_INVISIBLE))
    forms = (unicodedata.normalize("NFC" if index % 2 else "NFKC", part) for index, part in enumerate(parts))
    return " ".join("".join(forms).split())


def leak_notices(questions: Sequence[Question], benchmarks: Mapping[str, Sequence[Question]]) -> list[str]:
    """Return for each benchmark of a run's validation how many of its questions are trained on."""
    trained = {normalized(str(question.metadata.get("question", ""))) for question in questions} - {""}
    found = {
        name: sum(normalized(str(item.metadata.get("question", ""))) in trained for item in items)
        for name, items in benchmarks.items()
    }
    return [
        f"validation.benchmarks.{name}: {count:,} of {len(benchmarks[name]):,} questions are trained on too."
        for name, count in found.items()
        if count
    ]


def _question(index: int, row: DataRow, text: str, prompt_ids: list[int]) -> Question:
    metadata = {
        "data_source": row.data_source,
        "answer_kind": row.answer_kind,
        "ability": row.ability,
        "question": row.question_text,
        "row": row.number,
        "num_rows": row.num_rows,
    }
    return build_question(index, row.question_id, text, row.answer, prompt_ids, metadata)


def _left_out_notice(source: DataSource, misfit: str) -> list[str]:
    if misfit and source.too_long_prompts == "refuse":
        advice = "raise algorithm.max_prompt_tokens, or set data.too_long_prompts to drop to leave them out"
        raise DataError(f"{source.origin}: {misfit}; {advice}.")
    return [f"{source.origin}: {misfit} were dropped."] if misfit else []
