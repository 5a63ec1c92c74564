"""Rows of a data set in verl's schema, read and checked one by one before a run starts."""

import glob
import gzip
import math
import os
import re
import zlib
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from exgrpo.jobs.runs.rollout_formats.row_fields import doubled
from exgrpo.jobs.specs.base import AnswerKind, DeclaredKind
from exgrpo.jobs.tasks.questions import hash_question
from exgrpo.jobs.training.templates import Message
from exgrpo_core.bounded_json import UnreadableFileError, parse_json
from exgrpo_core.errors import FieldsNamedError, InputError, first_line, shown

_ALLOWED_PROTOCOLS = frozenset({"file", "hf", "local", "zip"})


def load_data_set(source: str, config: str | None = None, *, split: str, streams: bool = False) -> Any:  # noqa: ANN401 - the library's classes have no types
    """Return a split of a data set; `streams` downloads only what is read.

    Raises:
        OSError, ValueError, KeyError, datasets.exceptions.DatasetsError: It cannot be loaded, or its card names files
            at an address.
    """
    import datasets
    from fsspec.registry import known_implementations

    # A card's `data_files` may be any address that fsspec knows, those of inner services included.
    for protocol in known_implementations.keys() - _ALLOWED_PROTOCOLS:
        del known_implementations[protocol]
    return datasets.load_dataset(source, config, split=split, streaming=streams)


def cached_data_set(source: str) -> Path | None:
    """Return the folder of a hub's data set whose rows were loaded before on this machine, None of any other."""
    from huggingface_hub.constants import HF_HOME

    cache = Path(os.environ.get("HF_DATASETS_CACHE") or Path(HF_HOME) / "datasets")
    namespace = "".join(source.rpartition("/")[:2]).replace("/", "___")
    if source.count("/") > 1 or not any(cache.glob(f"{glob.escape(namespace)}*")):
        return None  # looked at first, since the library takes a second to load
    builder = _cached_builder(source)
    return None if builder is None else Path(builder.cache_dir)


def _cached_builder(source: str) -> Any:  # noqa: ANN401 - the library's classes have no types
    from datasets.packaged_modules.cache.cache import Cache

    try:
        return Cache(repo_id=source, dataset_name=source.rpartition("/")[2], version="auto", hash="auto")
    except (OSError, ValueError):
        return None


COLUMNS = ("data_source", "prompt", "ability", "reward_model", "extra_info")
_NEEDED = ("data_source", "prompt", "reward_model")
_EXAMPLE = (
    '{"data_source": "mine", "prompt": [{"role": "user", "content": "1 + 1?"}], "reward_model": {"ground_truth": "2"}}'
)
FILE_SUFFIXES = (".parquet", ".jsonl", ".jsonl.gz")
_IMAGE_COLUMN = re.compile(
    r"(?:(?:question|problem|query|prompt|context|input|option|choice|decoded)_)?"
    r"(?:image|img|picture|photo|figure|diagram|video|audio)s?(?:_?(?:\d+|[a-j]|paths?|urls?|files?|bytes|base64|names?))?",
    re.IGNORECASE,
)
"""What a question is about in addition to its text; images of a solution are not meant."""
CHOICE_SOURCES = frozenset(
    {"arc_c", "arc_challenge", "mmlu", "mmlu_pro", "gpqa", "gpqa_diamond", "gpqa_main", "gpqa_extended"}
)

NO_NUMBERS = frozenset({"nan", "inf", "-inf"})
"""Texts that programs write for a gold answer that is missing or was not computed."""
OPTION_LABEL = re.compile(r"[A-J1-9]")

RawRow = Mapping[str, Any]


class DataError(FieldsNamedError, InputError, ValueError):
    """Data that cannot be trained on; the message names file, row and field and says what was expected."""

    fields = ("data.source",)


def wrong_suffix(file_name: str) -> DataError:
    """Return the refusal of a file of another kind, such as CSV."""
    return DataError(f"{file_name}: expected a file that ends in {', '.join(FILE_SUFFIXES)}; write its rows in one.")


def no_rows(origin: str) -> DataError:
    """Return the refusal of an empty file or data set."""
    return DataError(f"{origin}: has no rows; name a file or data set with questions.")


@dataclass(frozen=True, slots=True)
class DataRow:
    """One checked row: an optional system message and the user's question, its gold answer and how it is graded.

    `number` counts rows from 1; `num_rows` is how many equal rows the data holds.
    """

    number: int
    question_id: str
    data_source: str
    ability: str
    messages: tuple[Message, ...]
    answer: str
    answer_kind: AnswerKind
    num_rows: int = 1

    @property
    def question_text(self) -> str:
        """The user's message."""
        return self.messages[-1]["content"]

    @property
    def system_text(self) -> str:
        """The system message, "" where there is none."""
        return self.messages[0]["content"] if len(self.messages) > 1 else ""


def iterate_raw_rows(
    source: str,
    split: str,
    columns: Sequence[str] | None = COLUMNS,
    config: str | None = None,
    *,
    streams: bool = False,
    is_cached: bool = False,
) -> Iterator[tuple[int, RawRow]]:
    """Yield (row number from 1, row) of a Parquet or JSON-lines file, a saved data set's folder or a hub data set.

    Rows have those of `columns` that exist, by default verl's, or all of a data set in another schema, or with None;
    rows of JSON lines may have more. `config` is of a hub data set. With `streams` only its rows that are used are
    downloaded; with `is_cached` it is read as `cached_data_set` found it.

    Raises:
        DataError: It cannot be read.
    """
    path = Path(source)
    if source.endswith(FILE_SUFFIXES):
        if not path.is_file():
            raise DataError(f"{source}: no such file; give a Parquet or JSON-lines file or a data set name.")
        yield from _iterate_parquet(path, columns) if path.suffix == ".parquet" else _iterate_json_lines(path)
    elif path.is_file():
        raise wrong_suffix(source)
    else:
        yield from _iterate_dataset(source, (split, config), columns, streams, is_cached)


def is_of_verl(names: Container[str]) -> bool:
    """Return whether a row or data set with these columns is in verl's schema."""
    return "reward_model" in names or "data_source" in names


def _kept(columns: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return which of a data set's columns are read: of one that is not in verl's schema all."""
    is_row = {*COLUMNS} <= {*columns}
    is_other = is_row and not is_of_verl(names)
    return [name for name in names if is_other or name in columns or (is_row and _IMAGE_COLUMN.fullmatch(name))]


def refuse_images(raw: RawRow, label: str) -> None:
    """Refuse a row whose question has an image, a video or a sound: models are asked its text only.

    Raises:
        DataError: It has one.
    """
    for name, value in raw.items():
        if _IMAGE_COLUMN.fullmatch(name) and _holds_media(value):
            raise DataError(
                f"{label}, {name}: models are asked the text of a question only, without images, videos and sounds; "
                "remove the row, or the column if the text is enough."
            )


def _holds_media(value: object) -> bool:
    if isinstance(value, Mapping):  # a file as Parquet has it: bytes and path
        return any(_holds_media(part) for part in value.values())
    if isinstance(value, list | tuple):
        return any(map(_holds_media, value))
    return value is not None and value != "" and not isinstance(value, bool | int | float)


def check_row(
    origin: str,
    number: int,
    raw: RawRow,
    declared_kind: DeclaredKind,
    gold_field: str = "reward_model.ground_truth",
) -> DataRow:
    """Return the row of `origin` as a `DataRow`; errors name `gold_field` as where its gold answer is written.

    Raises:
        DataError: A field is missing or is not what the schema says.
    """
    label = f"{origin}, row {number}"
    refuse_images(raw, label)
    if missing := [name for name in _NEEDED if name not in raw]:
        raise DataError(f"{label}: has no {missing[0]}; expected a row such as {_EXAMPLE}.")
    data_source = _text(raw, "data_source", label)
    messages = _messages(raw.get("prompt"), label)
    answer = _answer(raw.get("reward_model"), f"{label}, {gold_field}")
    kind = _answer_kind(declared_kind, data_source)
    if kind == "choice" and OPTION_LABEL.fullmatch(answer) is None:
        raise DataError(
            f"{label}, {gold_field}: expected an option label A-J or 1-9, got {answer[:60]!r}; "
            "correct it, or grade by answer_kind math."
        )
    ability = raw.get("ability")
    return DataRow(
        number=number,
        question_id=hash_question(data_source, messages[-1]["content"], answer),
        data_source=data_source,
        ability=check_text(ability, f"{label}, ability") if isinstance(ability, str) else "",
        messages=messages,
        answer=answer,
        answer_kind=kind,
    )


def _iterate_parquet(path: Path, columns: Sequence[str] | None) -> Iterator[tuple[int, RawRow]]:
    try:
        file = pq.ParquetFile(path)
        if twice := doubled(file.schema_arrow.names):
            raise DataError(f"{path}: {twice}")
        names = None if columns is None else _kept(columns, file.schema_arrow.names)
        batches = file.iter_batches(batch_size=1024, columns=names)
        rows = (row for batch in batches for row in batch.to_pylist())
        yield from enumerate(rows, start=1)
    except DataError:
        raise
    except (OSError, ValueError, pa.ArrowException) as error:
        why = " ".join(str(error).split())
        raise DataError(f"{path}: is not a readable Parquet file ({why}); give a whole copy.") from error


def _iterate_json_lines(path: Path) -> Iterator[tuple[int, RawRow]]:
    number = 0
    try:
        # Windows programs begin files with a mark (BOM), which is no part of the first row.
        with (
            gzip.open(path, "rt", encoding="utf-8-sig")
            if path.suffix == ".gz"
            else path.open(encoding="utf-8-sig") as file
        ):
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, _json_object(line, path, number)
    except UnicodeDecodeError as error:
        raise DataError(f"{path}, row {number + 1}: is not UTF-8 ({error}); save it as UTF-8.") from error
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}, row {number + 1}: cannot be read ({error}); give a whole copy.") from error


def _json_object(line: str, path: Path, number: int) -> RawRow:
    if line.lstrip().startswith("["):
        raise DataError(f"{path}, row {number}: expected a JSON object in each line, got a list; write one in each.")
    try:
        row = parse_json(line)
    except UnreadableFileError as error:
        text = f"{str(error).removesuffix('.')}; correct or remove this row."
        raise DataError(f"{path}, row {number}: {text}") from error
    if not isinstance(row, dict):
        raise DataError(f"{path}, row {number}: expected a JSON object, got {shown(row)}.")
    return row


def _iterate_dataset(
    source: str, place: tuple[str, str | None], columns: Sequence[str] | None, streams: bool, is_cached: bool
) -> Iterator[tuple[int, RawRow]]:
    import datasets

    split, config = place

    try:
        if (Path(source) / "dataset_dict.json").is_file():
            dataset = datasets.load_from_disk(source)[split]
        elif (Path(source) / "state.json").is_file():
            dataset = datasets.load_from_disk(source)
        elif is_cached:
            dataset = _cached_builder(source).as_dataset(split=split)
        else:
            dataset = load_data_set(source, config, split=split, streams=streams)
        if columns is not None and dataset.column_names:  # a stream may not know its columns before the first row
            dataset = dataset.select_columns(_kept(columns, dataset.column_names))
        yield from enumerate(dataset, start=1)
    except (OSError, ValueError, KeyError, datasets.exceptions.DatasetsError) as error:
        known = "" if Path(source).exists() else "is no file here, and "
        raise DataError(
            f"{source}: {known}the data set or its split {split!r} cannot be loaded ({first_line(error)}); "
            f"give a Hugging Face data set name or a file that ends in {', '.join(FILE_SUFFIXES)}."
        ) from error


def _text(raw: RawRow, field: str, label: str) -> str:
    value = raw.get(field)
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"{label}, {field}: expected a text, got {shown(value)}.")
    return check_text(value, f"{label}, {field}")


def check_text(text: str, label: str) -> str:
    """Return a text that can be encoded.

    Raises:
        DataError: It holds half of a character.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = text[error.start].encode("unicode_escape").decode()
        raise DataError(f"{label}: holds half of a character ({half}, at {error.start}); remove it.") from None
    return text


def _messages(value: object, label: str) -> tuple[Message, ...]:
    if not isinstance(value, list) or not value:
        raise DataError(f"{label}, prompt: expected a list of messages with content and role, got {shown(value)}.")
    for message in value:
        if not isinstance(message, dict):
            raise DataError(f"{label}, prompt: expected messages with content and role, got {shown(message)}.")
        for field in ("role", "content"):
            _text(message, field, f"{label}, prompt")
    roles = [message["role"] for message in value]
    if roles not in (["user"], ["system", "user"]):
        raise DataError(f"{label}, prompt: expected one user message, after a system message or not, got {roles}.")
    return tuple({"role": message["role"], "content": message["content"]} for message in value)


def _answer(reward_model: object, label: str) -> str:
    value = reward_model.get("ground_truth") if isinstance(reward_model, dict) else None
    is_number = isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
    answer = str(value).strip() if isinstance(value, str) or (is_number and not isinstance(value, bool)) else ""
    if not answer or answer.casefold() in NO_NUMBERS:
        raise DataError(f"{label}: expected a text or number, got {shown(value)}.")
    return check_text(answer, label)


def _answer_kind(declared: DeclaredKind, data_source: str) -> AnswerKind:
    if declared != "auto":
        return declared
    return "choice" if data_source.lower().replace("-", "_") in CHOICE_SOURCES else "math"
