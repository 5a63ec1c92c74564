"""Benchmarks of a user's own: a data file or an entry of a YAML file in the workbench's folder of the runs root.

`workbench/benchmarks/sums.jsonl` is the benchmark `sums`. An entry of a YAML file there says more:

    sums:
      source: sums.jsonl          # beside the YAML file, or a whole path, or a Hugging Face data set
      title: Sums to 100
      samples_per_question: 8
      template: chat
      temperature: 0.6
      answer_kind: math

Its fields are those of `BenchmarkChoice`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from jobs.evaluation.protocols import load_protocols, protocol_of
from jobs.runs.directory import WORKBENCH_FOLDER
from jobs.specs.base import ValidationBenchmark
from jobs.specs.evaluation import BENCHMARK_NAME, BenchmarkChoice
from jobs.specs.mistakes import SpecError, checked
from jobs.specs.presets import read_mapping
from jobs.specs.train import TrainSpec
from jobs.training.data_rows import FILE_SUFFIXES

BENCHMARKS_FOLDER = "benchmarks"


@dataclass(slots=True)
class UserBenchmarks:
    """What a user declared: benchmarks by name, and a sentence on each entry or file that is wrong."""

    choices: dict[str, BenchmarkChoice] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


def benchmarks_folder(runs_root: Path) -> Path:
    """Return where a user's benchmarks are declared."""
    return runs_root / WORKBENCH_FOLDER / BENCHMARKS_FOLDER


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
        choice = checked(BenchmarkChoice, fields, "validation.benchmarks")
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
    return choice.model_copy(update={"source": str(beside.absolute())}) if _exists(beside) else choice


def _exists(path: Path) -> bool:
    """Whether there is such a file; text of any length and with any character may be asked for."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False
