"""A format of the user's: a mapping in YAML, or a Python file of one function, for rows of JSON lines or Parquet.

    prompt: $.input            # a text, or messages; or `messages`, the whole conversation
    response: $.choices[0].text
    reward: $.scores.total

The function gets a row as a dict and returns such a dict of values, or None to leave the row out. It runs in this
process. Fields that a mapping does not name are columns.
"""

import importlib.util
import inspect
import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from exgrpo.jobs.runs.rollout_formats.formats import RolloutFormat
from exgrpo.jobs.runs.rollout_formats.rollout_files import bare
from exgrpo.jobs.runs.rollout_formats.row_fields import Row, extra_of, step_of, step_of_file
from exgrpo.jobs.runs.rollout_formats.source import PART_SIZE, RolloutSource, Rows
from exgrpo.jobs.specs.presets import read_mapping
from exgrpo_core.errors import InputError, first_line
from exgrpo_core.recording.given import as_trajectory
from exgrpo_core.recording.rows import RecordedStep, RecordedTrajectory

FIELDS = (
    "prompt", "response", "messages", "step", "reward", "rewards", "advantage", "question_id", "group", "answer",
    "verdict", "is_truncated", "num_tokens", "token_ids", "log_probs", "entropies",
)  # fmt: skip
_PATH = re.compile(r"\$(\.[^.\[\]]+|\[\d+\])+")
_KEY = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")
Rule = Callable[[Row], Mapping[str, Any] | None]


class OwnFormatError(InputError):
    """A format file that cannot be used; one sentence names the file and the field."""


def load_own_format(path: Path, sources: Iterable[Path] = ()) -> RolloutFormat:
    """Return the format that a file describes, tried on the first rows of `sources`.

    Raises:
        OwnFormatError: It is missing, describes none, or fits none of a source's first rows.
        SpecError: It is not plain YAML.
        OSError: A source cannot be read.
    """
    if not path.is_file():
        raise OwnFormatError(f"{path}: no such file; name a mapping in YAML or a Python file of one function.")
    rule = _python_rule(path) if path.suffix == ".py" else _yaml_rule(path)
    for source in sources:
        _require_fit(path, rule, source)
    return RolloutFormat(str(path), lambda _: True, partial(_read, rule))


def _require_fit(path: Path, rule: Rule, place: Path) -> None:
    source = RolloutSource(place)
    rows = ((row, file) for file, read in _files(source) for _, row in read(file))
    why = "it has no rows of JSON lines or Parquet."
    for row, file in islice(rows, PART_SIZE):
        try:
            [*_made(rule, row, file)]
        except Exception as error:  # noqa: BLE001 - the user's code may raise anything
            why = str(error) if isinstance(error, ValueError) else repr(error)
        else:
            return
    raise OwnFormatError(f"{path}: fits none of the first rows of {place}: {why}")


def _yaml_rule(path: Path) -> Rule:
    mapping = read_mapping(path)
    unknown = [name for name in mapping if name not in FIELDS]
    if unknown:
        raise OwnFormatError(f"{path}: {unknown[0]}: expected one of {', '.join(FIELDS)}.")
    wrong = [name for name, value in mapping.items() if not isinstance(value, str) or not _PATH.fullmatch(value)]
    if wrong:
        raise OwnFormatError(f"{path}: {wrong[0]}: expected where the value is in a row, such as $.input or $.a[0].b.")
    if not {"messages"} <= mapping.keys() and not {"prompt", "response"} <= mapping.keys():
        raise OwnFormatError(f"{path}: expected messages, or prompt and response, such as prompt: $.input")
    keys = {name: [key or int(index) for key, index in _KEY.findall(value)] for name, value in mapping.items()}
    used = {*FIELDS, *(str(found[0]) for found in keys.values())}
    return lambda row: (
        extra_of(row, used) | {name: _value_at(row, f"{name}: {mapping[name]}", found) for name, found in keys.items()}
    )


def _value_at(value: Any, where: str, keys: list[str | int]) -> Any:  # noqa: ANN401 - any JSON value
    for key in keys:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            has = ", ".join(value) if isinstance(value, dict) else reprlib.repr(value)
            raise ValueError(f"{where}: the row has no {key}, only {has}.") from None
    return value


def _python_rule(path: Path) -> Rule:
    spec = importlib.util.spec_from_file_location("rollout_format", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # noqa: BLE001 - the user's code may raise anything
        raise OwnFormatError(
            f"{path}: cannot be loaded ({type(error).__name__}: {first_line(error)}); correct the file."
        ) from None
    own = [value for _, value in inspect.getmembers(module, inspect.isfunction) if value.__module__ == module.__name__]
    rules = [value for value in own if not value.__name__.startswith("_")]
    if len(rules) != 1:
        raise OwnFormatError(f"{path}: expected one function without _ before its name, found {len(rules)}.")
    rule: Rule = rules[0]
    return rule


def _read(rule: Rule, source: RolloutSource) -> Iterator[RecordedStep]:
    for file, read in _files(source):
        yield from source.rollouts([file], partial(_made, rule), read)


def _files(source: RolloutSource) -> Iterator[tuple[Path, Callable[[Path], Rows]]]:
    for file in source.files(".jsonl", ".ndjson", ".parquet"):
        yield file, source.parquet_rows if bare(file).suffix == ".parquet" else source.json_rows


def _made(rule: Rule, row: Row, file: Path) -> Iterator[tuple[int, RecordedTrajectory]]:
    fields = rule(row)
    if fields is not None:
        given = {name: value for name, value in fields.items() if name != "step"}
        yield _step_of(fields, file), as_trajectory(given)


def _step_of(fields: Mapping[str, Any], file: Path) -> int:
    """Return the step, where none is given that of a file named by a number, else 0."""
    given = {"step": step_of_file(file)} if fields.get("step") is None else dict(fields)
    return step_of(given, "step")
