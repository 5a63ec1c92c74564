"""Rows of a benchmark in whatever layout they come: verl's schema, or the layouts of the published data sets."""

import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from exgrpo_core.errors import first_line
from jobs.evaluation.protocols import HubDataSet
from jobs.training.data_rows import FILE_SUFFIXES, DataError, iterate_parquet, iterate_raw_rows, load_data_set

RawRow = Mapping[str, Any]
_LETTERS = "ABCDEFGHIJ"


def iterate_rows(source: str | None, hub: HubDataSet | None) -> Iterator[tuple[int, RawRow]]:
    """Yield (row number from 1, row) of a file, of a named data set, or of the protocol's own one.

    Raises:
        DataError: The source cannot be read; the message names it.
    """
    split = "test" if hub is None else hub.split
    if source is None:
        if hub is not None:
            yield from _iterate_hub(hub)
    elif source.endswith(".parquet") and Path(source).is_file():
        yield from iterate_parquet(Path(source))
    elif source.endswith(FILE_SUFFIXES) or Path(source).exists():
        yield from iterate_raw_rows(source, split)
    else:
        yield from _iterate_hub(HubDataSet(source, split))


def has_options(raw: RawRow) -> bool:
    """Return whether a row that is not in verl's schema asks for one of several options."""
    return any(key in raw for key in ("options", "choices", "Correct Answer"))


def read_plain_row(raw: RawRow, origin: str) -> tuple[str | None, str, object, str | None]:
    """Return id, question, gold answer and what is odd about a row that is not in verl's schema.

    Known are MATH-500's and AIME's columns (problem, answer), MMLU-Pro's (question, options, answer), ARC's (question,
    choices, answerKey) and GPQA's (Question, Correct Answer, three incorrect ones, in an order drawn by the question).

    Raises:
        DataError: The columns are of no known layout; the message begins with `origin`.
    """
    identity = next((str(raw[key]) for key in ("question_id", "unique_id", "Record ID", "id") if raw.get(key)), None)
    if "Question" in raw and "Correct Answer" in raw:
        return (identity, *_gpqa(raw), None)
    if "options" in raw and "question" in raw:
        odd = _contradiction(raw)
        return identity, _with_options(str(raw["question"]), list(raw["options"])), raw.get("answer"), odd
    if "choices" in raw and "question" in raw:
        labels, texts = raw["choices"]["label"], raw["choices"]["text"]
        lines = "".join(f"{label}) {text}\n" for label, text in zip(labels, texts, strict=True))
        return identity, f"{raw['question']}\n\n{lines}", raw.get("answerKey"), None
    for key in ("problem", "question"):
        if isinstance(raw.get(key), str):
            return identity, str(raw[key]), raw.get("answer"), None
    raise DataError(f"{origin}: expected columns of verl's schema or of a published layout, got {', '.join(raw)}.")


def _gpqa(raw: RawRow) -> tuple[str, str]:
    correct = str(raw["Correct Answer"]).strip()
    options = [correct, *(str(raw[f"Incorrect Answer {number}"]).strip() for number in (1, 2, 3))]
    random.Random(str(raw["Question"])).shuffle(options)
    return _with_options(str(raw["Question"]).strip(), options), _LETTERS[options.index(correct)]


def _with_options(question: str, options: list[str]) -> str:
    lines = "".join(f"{letter}) {option}\n" for letter, option in zip(_LETTERS, options, strict=False))
    return f"{question}\n\n{lines}"


def _contradiction(raw: RawRow) -> str | None:
    answer, index = raw.get("answer"), raw.get("answer_index")
    if not isinstance(index, int) or not isinstance(answer, str) or _LETTERS[index : index + 1] == answer:
        return None
    return f"answer {answer} contradicts answer_index {index}; the answer counts"


def _iterate_hub(hub: HubDataSet) -> Iterator[tuple[int, RawRow]]:
    import datasets

    try:
        rows = load_data_set(hub.name, hub.config, split=hub.split)
    except (OSError, ValueError, KeyError, datasets.exceptions.DatasetsError) as error:
        raise DataError(
            f"{hub.name}: the data set or its split {hub.split!r} cannot be loaded ({first_line(error)}); "
            f"name a file of your own that ends in {', '.join(FILE_SUFFIXES)}."
        ) from error
    yield from enumerate(rows, start=1)
