"""Local files that a specification names: checked and made absolute before a run is queued; code in them is refused."""

import os
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from exgrpo.jobs.actions.preflight.looks import Look, check_settings
from exgrpo.jobs.evaluation.benchmark_questions import LoadedBenchmark, load_benchmark
from exgrpo.jobs.evaluation.protocols import protocol_of
from exgrpo.jobs.specs.base import BenchmarkFields
from exgrpo.jobs.specs.evaluation import BenchmarkChoice, EvalSpec
from exgrpo.jobs.specs.train import (
    CHAINS_SOURCE,
    CHAINS_WARM_MODEL,
    DEFAULT_NUM_MADE,
    DataSpec,
    SpecError,
    TrainSpec,
)
from exgrpo.jobs.tasks.chains.question_set import check_range
from exgrpo.jobs.tasks.grading.rewards import TASKS
from exgrpo.jobs.training.data_rows import DataError, cached_data_set
from exgrpo.jobs.training.dataset import DataSource, Rows, check_count, read_rows, system_notices, use_notices
from exgrpo.jobs.training.pretrained.model_shapes import SETTINGS_FILES, named_code, read_settings
from exgrpo.jobs.training.pretrained.sources import GGUF_SUFFIX, find_package
from exgrpo.jobs.training.templates import TemplateName
from exgrpo_core.bounded_json import UnreadableFileError
from exgrpo_core.errors import Mistake, joined

AnyBenchmark = TypeVar("AnyBenchmark", bound=BenchmarkFields)
_MADE_HERE = frozenset({*TASKS, CHAINS_WARM_MODEL})
"""Sources that are made here, not read from files."""
_PATH_BEGINNINGS = ("/", "./", "../", "~")
_GGUF_START = b"GGUF"
_FILE_ENDINGS = (GGUF_SUFFIX, ".parquet", ".jsonl", ".json", ".jsonl.gz", ".json.gz", ".csv", ".safetensors", "/")


def with_absolute_sources(spec: TrainSpec, *, is_checked: bool = True) -> TrainSpec:
    """Return `spec` with local files made absolute, as seen from this process's folder; workers run in another.

    With `is_checked` False they need not be on this machine, and nothing is raised.

    Raises:
        SpecError: A file does not exist, a model comes with code, or the settings of the reward model are damaged.
    """
    mistakes: list[Mistake] = []

    def absolute(field: str, source: str) -> str:
        try:
            return resolve_source(field, source, is_checked=is_checked)
        except SpecError as error:
            mistakes.extend(error.mistakes)
            return source

    changes: dict[str, object] = {
        "data": spec.data.model_copy(update={"source": absolute("data.source", spec.data.source)}),
        "model": spec.model.model_copy(update={"source": absolute("model.source", spec.model.source)}),
    }
    if mistakes:
        raise SpecError(joined(mistakes), mistakes=mistakes)
    if is_checked:
        refuse_remote_code("model.source", spec.model.source, spec.model.revision)
    if spec.reward_model is not None:
        if is_checked:
            refuse_remote_code("reward_model.source", spec.reward_model.source)
            check_settings("reward_model.source", spec.reward_model.source)
        source = absolute("reward_model.source", spec.reward_model.source)
        changes["reward_model"] = spec.reward_model.model_copy(update={"source": source})
    if spec.validation.benchmarks:
        benchmarks = {
            name: _with_absolute_source(benchmark, f"validation.benchmarks.{name}", is_checked=is_checked)
            for name, benchmark in spec.validation.benchmarks.items()
        }
        changes["validation"] = spec.validation.model_copy(update={"benchmarks": benchmarks})
    if spec.external_experience is not None:
        changes["external_experience"] = _resolve_file(
            "external_experience", str(spec.external_experience), is_checked=is_checked
        )
    return spec.model_copy(update=changes)


def check_rows(look: Look) -> list[str]:
    """Return what a user should know about a file of questions, every row of which is checked.

    Data of the hub is read where it was loaded before on this machine; what is downloaded later is checked then.

    Raises:
        SpecError: It has a bad row, or too few questions; one sentence names file, row and field.
    """
    spec, data = look.spec, look.spec.data
    if not data.source.strip():
        text = "name your questions: a Parquet or JSON-lines file, or a Hugging Face data set."
        raise SpecError(text, "data.source")
    if data.source == CHAINS_SOURCE:
        _check_chains(data)
    cached = None
    if data.source in TASKS or not (os.path.exists(data.source) or (cached := cached_data_set(data.source))):
        return []
    column = spec.external_column if spec.sft is None else spec.sft.response_column
    source = replace(DataSource.of(data), response_column=column, is_imitated=spec.sft is not None)
    file = os.stat(cached or data.source)
    try:
        rows = _read_once(replace(source, num_questions=None), cached is not None, file.st_mtime_ns, file.st_size)
        check_count(source, len(rows.rows))
        if column is not None:
            _check_responses(source, rows, data.num_held_out)
    except DataError as error:
        raise SpecError(str(error), "data.source") from None
    num_left = len(rows.rows) - data.num_held_out
    if data.num_questions is None and num_left < (1 if spec.sft else spec.algorithm.batch_size):
        raise SpecError(
            f"expected at most the questions to train on ({max(0, num_left)} of {source.origin}).",
            "algorithm.batch_size", "data.num_held_out",
        )  # fmt: skip
    used = rows.rows[: source.num_questions]
    is_chat = (
        source.template.resolved(not look.model.has_config or look.model.chat_template is not None) is TemplateName.CHAT
    )
    num_system = 0 if is_chat else sum(bool(row.system_text) for row in used)
    return [*rows.notices, *use_notices(source, len(used), len(rows.rows)), *system_notices(source, num_system)]


def _check_chains(data: DataSpec) -> None:
    num_all = (data.num_questions or DEFAULT_NUM_MADE) + data.num_held_out
    try:
        check_range(num_all, data.min_operations, data.max_operations, data.modulus)
    except ValueError as error:
        raise SpecError(str(error), "data") from None


def _check_responses(source: DataSource, rows: Rows, num_held_out: int) -> None:
    """Refuse a column that lacks demonstrations for the questions to train on, or has no off-policy trajectory."""
    used = rows.rows[: source.num_questions]
    trained = [row.number for row in used[: len(used) - num_held_out]]
    faults = [rows.responses[number] for number in trained if number in rows.responses]
    if fault := next(filter(None, faults), None):
        raise DataError(fault)
    if not faults:
        raise DataError(
            f"{source.origin}: has nothing in the column {source.response_column!r}; name another in external_column."
        )


def check_benchmarks(look: Look) -> list[str]:
    """Return what a user should know about the files of `validation.benchmarks`, every row of which is checked.

    Raises:
        SpecError: One has a bad row, or too few questions.
    """
    choices = [BenchmarkChoice(name=name, **dict(fields)) for name, fields in look.spec.validation.benchmarks.items()]
    try:
        return [notice for loaded in look_at_benchmarks(choices) for notice in loaded.notices]
    except DataError as error:
        raise SpecError(str(error), "validation.benchmarks") from None


def look_at_benchmarks(choices: Iterable[BenchmarkChoice]) -> list[LoadedBenchmark]:
    """Return the benchmarks in local files; each file is read once while it stays as it is.

    Raises:
        DataError: One has a bad row, or too few questions.
    """
    sources = ((choice, Path(choice.source)) for choice in choices if choice.source is not None)
    files = [(choice, path.stat()) for choice, path in sources if path.is_file()]
    return [_load_once(choice, file.st_mtime_ns, file.st_size) for choice, file in files]


@lru_cache(maxsize=8)
def _load_once(choice: BenchmarkChoice, _modified_at: int, _size: int) -> LoadedBenchmark:
    return load_benchmark(choice, protocol_of(choice))


@lru_cache(maxsize=1)
def _read_once(source: DataSource, is_cached: bool, _modified_at: int, _size: int) -> Rows:
    """Return a file's rows, kept while the file stays as it is: a form asks after each change."""
    return read_rows(source, is_cached=is_cached)


def with_model_source(spec: TrainSpec, source: str) -> TrainSpec:
    """Return `spec` starting from another model."""
    return spec.model_copy(update={"model": spec.model.model_copy(update={"source": source})})


def with_absolute_benchmarks(spec: EvalSpec) -> EvalSpec:
    """Return `spec` with the benchmarks' local files made absolute.

    Raises:
        SpecError: A file does not exist, or the model comes with code; the sentence names benchmark or field.
    """
    refuse_remote_code("model.source", spec.model.source, spec.model.revision)
    choices = tuple(_with_absolute_source(choice, f"benchmarks.{choice.name}") for choice in spec.benchmarks)
    return spec.model_copy(update={"benchmarks": choices})


def _with_absolute_source(benchmark: AnyBenchmark, field: str, *, is_checked: bool = True) -> AnyBenchmark:
    if benchmark.source is None:
        return benchmark
    source = resolve_source(f"{field}.source", benchmark.source, is_checked=is_checked)
    return benchmark.model_copy(update={"source": source})


def resolve_source(field: str, source: str, *, is_checked: bool = True) -> str:
    """Return an existing file or folder by its absolute path, a hub name or a source made here unchanged.

    With `is_checked` False it need not exist.

    Raises:
        SpecError: `source` is written like a path, which no hub name is, and does not exist, or is no GGUF file.
    """
    if source in _MADE_HERE or find_package(source) is not None:
        return source
    is_path = source.startswith(_PATH_BEGINNINGS) or source.endswith(_FILE_ENDINGS) or source.count("/") > 1
    if not is_path and not os.path.exists(source):
        return source
    path = _resolve_file(field, source, is_checked=is_checked)
    if is_checked and path.suffix == GGUF_SUFFIX and path.is_file():
        _check_gguf(field, path)
    return str(path)


def _check_gguf(field: str, path: Path) -> None:
    try:
        with path.open("rb") as file:
            is_gguf = file.read(len(_GGUF_START)) == _GGUF_START
    except OSError as error:
        raise SpecError(f"{path} cannot be read ({error.strerror}); change its rights.", field) from None
    if not is_gguf:
        raise SpecError(f"{path} is no GGUF file: it does not begin with GGUF; download it again.", field)


def _resolve_file(field: str, source: str, *, is_checked: bool = True) -> Path:
    # These accept any text, even one too long for a name or with an unknown user.
    path = Path(os.path.expanduser(source)).absolute()
    if is_checked and not os.path.exists(path):
        raise SpecError(f"no file or folder is at {path}; correct the path, or put it there.", field)
    # A cache of the hub links to files whose names have no ending.
    return path if path.suffix == GGUF_SUFFIX else path.resolve()


def refuse_remote_code(field: str, source: str, revision: str | None = None) -> None:
    """Refuse a model on this machine that comes with code; code of a model downloaded later is never run either.

    Raises:
        SpecError: One of its files names code.
    """
    for name in SETTINGS_FILES:
        try:
            field_of_code = named_code(read_settings(source, name, revision))
        except UnreadableFileError:
            continue  # `check_settings` names it
        if field_of_code is not None:
            raise SpecError(
                f"{source} comes with code ({field_of_code} in {name}), which is never run; choose a model "
                "whose architecture transformers knows.",
                field,
            )
