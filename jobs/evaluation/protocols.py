"""Benchmarks: what each consists of and how it is scored, of the paper's nine and of a user's own.

A user's own is a data file or an entry of a YAML file in the workbench's folder of the runs root.
`workbench/benchmarks/sums.jsonl` is the benchmark `sums`. An entry of a YAML file there says more; its fields are those
of `BenchmarkChoice`:

    sums:
      source: sums.jsonl          # next to the YAML file, or a whole path, or a Hugging Face data set
      title: Sums to 100
      samples_per_question: 8
      temperature: 0.6
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from exgrpo.jobs.runs.directory import WORKBENCH_FOLDER
from exgrpo.jobs.specs.base import DeclaredKind, SpecError, ValidationBenchmark, checked
from exgrpo.jobs.specs.evaluation import BENCHMARK_NAME, BenchmarkChoice
from exgrpo.jobs.specs.presets import read_mapping
from exgrpo.jobs.specs.train import TrainSpec
from exgrpo.jobs.training.data_rows import FILE_SUFFIXES

PROTOCOLS_FILE = Path(__file__).parent / "benchmarks.yaml"


@dataclass(frozen=True, slots=True)
class HubDataSet:
    """A Hugging Face data set."""

    name: str
    split: str
    config: str | None = None


@dataclass(frozen=True, slots=True)
class Protocol:
    """One benchmark. `samples_per_question` is n of Avg@n; with one sample that is Pass@1.

    Without `data_sources` every row counts, without `num_questions` as many as there are.
    """

    name: str
    title: str
    data_sources: tuple[str, ...]
    hub: HubDataSet | None
    num_questions: int | None
    samples_per_question: int
    answer_kind: DeclaredKind


@cache
def load_protocols() -> dict[str, Protocol]:
    """Return the protocols of the paper's benchmarks by name, in the order of its tables."""
    content: dict[str, dict[str, Any]] = yaml.safe_load(PROTOCOLS_FILE.read_text(encoding="utf-8"))
    for fields in content.values():
        fields |= {"data_sources": tuple(fields["data_sources"]), "hub": HubDataSet(**fields["hub"])}
    return {name: Protocol(name=name, **fields) for name, fields in content.items()}


def find_protocol(name: str) -> Protocol:
    """Return a protocol of the paper's by name.

    Raises:
        SpecError: There is none; the message lists those there are.
    """
    protocols = load_protocols()
    if name not in protocols:
        raise SpecError(
            f"expected some of {', '.join(protocols)}, got {name!r}; for data of your own name its file, "
            f"as in {name}=FILE.",
            "benchmarks",
        )
    return protocols[name]


def protocol_of(choice: BenchmarkChoice, where: str = "benchmarks") -> Protocol:
    """Return the protocol by which a benchmark is scored: the paper's, or for another name what the choice says.

    Raises:
        SpecError: Neither the paper's nor one with a source, or the paper's with a title or grading of one's own.
    """
    if choice.source is None or choice.name in load_protocols():
        for field in ("title", "answer_kind"):
            if getattr(choice, field) is not None:
                raise SpecError(
                    f"expected none, since {choice.name} is the paper's; choose another name for a benchmark of "
                    "your own.",
                    f"{where}.{choice.name}.{field}",
                )
        return find_protocol(choice.name)
    return Protocol(
        name=choice.name,
        title=choice.title or choice.name,
        data_sources=(),
        hub=None,
        num_questions=None,
        samples_per_question=choice.samples_per_question or 1,
        answer_kind=choice.answer_kind or "auto",
    )


def graded_as(choice: BenchmarkChoice, kind: DeclaredKind) -> BenchmarkChoice:
    """Return a benchmark that, if it is the user's own and does not say how it is graded, is graded as `kind`."""
    if choice.source is None or choice.name in load_protocols() or choice.answer_kind is not None or kind == "auto":
        return choice
    return choice.model_copy(update={"answer_kind": kind})


@dataclass(slots=True)
class UserBenchmarks:
    """What a user declared: benchmarks by name, and a sentence on each entry or file that is wrong."""

    choices: dict[str, BenchmarkChoice] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


def benchmarks_folder(runs_root: Path) -> Path:
    """Return where a user's benchmarks are declared."""
    return runs_root / WORKBENCH_FOLDER / "benchmarks"


def load_user_benchmarks(runs_root: Path) -> UserBenchmarks:
    """Return a user's benchmarks: entries of YAML files, then data files that no entry names.

    A wrong entry or file leaves out itself alone; its sentence names file, entry and field.
    """
    folder = benchmarks_folder(runs_root)
    benchmarks = UserBenchmarks()
    declared = benchmarks.choices
    for path in sorted(folder.glob("*.yaml")):
        for entry in _entries(path):
            if isinstance(entry, SpecError):
                benchmarks.faults.append(str(entry))
            elif entry.name in declared:
                benchmarks.faults.append(
                    f"{path}: {entry.name} is declared in another file already; rename one of them."
                )
            else:
                declared[entry.name] = entry
    sources = {choice.source for choice in declared.values()}
    for path in sorted(folder.glob("*")):
        name = next((path.name.removesuffix(suffix) for suffix in FILE_SUFFIXES if path.name.endswith(suffix)), "")
        if BENCHMARK_NAME.fullmatch(name) and str(path.absolute()) not in sources and name not in load_protocols():
            declared.setdefault(name, BenchmarkChoice(name=name, source=str(path.absolute())))
    return benchmarks


def choose_benchmark(
    given: Mapping[str, object], declared: UserBenchmarks, where: str = "benchmarks"
) -> dict[str, object]:
    """Return the fields of a benchmark to run: those given, else those that the user declared under its name.

    Raises:
        SpecError: The name is neither the paper's nor declared, and no source is given; `where` is the field.
    """
    name, wanted = str(given.get("name")), {key: value for key, value in given.items() if value is not None}
    if name in declared.choices:
        return declared.choices[name].model_dump(exclude_unset=True) | wanted
    if "source" not in wanted and name not in load_protocols():
        known = ", ".join([*load_protocols(), *declared.choices])
        raise SpecError(
            f"expected some of {known}, got {name!r}; for data of your own name its file, as in {name}=FILE."
            + "".join(f" {fault}" for fault in declared.faults),
            where,
        )
    return wanted


def with_declared_benchmarks(spec: TrainSpec, runs_root: Path) -> TrainSpec:
    """Return `spec` with what the user declared for a benchmark that `validation.benchmarks` names.

    Raises:
        SpecError: One is neither the paper's nor declared, or the paper's with a title or grading of one's own.
    """
    given = spec.validation.benchmarks
    if not given:
        return spec
    declared = load_user_benchmarks(runs_root)
    chosen: dict[str, object] = {}
    for name, benchmark in given.items():
        fields = choose_benchmark({"name": name, **dict(benchmark)}, declared, "validation.benchmarks")
        choice = graded_as(checked(BenchmarkChoice, fields, "validation.benchmarks"), spec.data.answer_kind)
        protocol_of(choice, "validation.benchmarks")
        chosen[name] = ValidationBenchmark(**choice.model_dump(exclude={"name"}))
    return spec.model_copy(update={"validation": spec.validation.model_copy(update={"benchmarks": chosen})})


def _entries(path: Path) -> Iterator[BenchmarkChoice | SpecError]:
    """Yield each entry of a YAML file, or what is wrong with it."""
    try:
        entries = read_mapping(path)
    except SpecError as error:
        yield error
        return
    for name, fields in entries.items():
        try:
            yield _entry(path, name, fields)
        except SpecError as error:
            yield error


def _entry(path: Path, name: str, fields: object) -> BenchmarkChoice:
    if not isinstance(fields, dict):
        raise SpecError(f"{path}: {name}: expected fields such as source, got {str(fields)[:60]!r}.")
    choice = checked(BenchmarkChoice, {**fields, "name": name}, f"{path}: {name}")
    if name in load_protocols():
        raise SpecError(f"{path}: {name}: is one of the paper's benchmarks; choose another name.")
    if choice.source is None:
        raise SpecError(f"{path}: {name}.source: expected a file or a Hugging Face data set, got none.")
    beside = path.parent / str(choice.source)
    return choice.model_copy(update={"source": str(beside.absolute())}) if beside.exists() else choice
