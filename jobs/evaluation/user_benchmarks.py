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
from pathlib import Path

from jobs.evaluation.protocols import load_protocols
from jobs.runs.directory import WORKBENCH_FOLDER
from jobs.specs.evaluation import BENCHMARK_NAME, BenchmarkChoice
from jobs.specs.mistakes import SpecError, checked
from jobs.specs.train import read_mapping
from jobs.training.data_rows import FILE_SUFFIXES

BENCHMARKS_FOLDER = "benchmarks"


def benchmarks_folder(runs_root: Path) -> Path:
    """Return where a user's benchmarks are declared."""
    return runs_root / WORKBENCH_FOLDER / BENCHMARKS_FOLDER


def load_user_benchmarks(runs_root: Path) -> dict[str, BenchmarkChoice]:
    """Return a user's benchmarks by name: entries of YAML files, then data files that no entry names.

    Raises:
        SpecError: An entry is wrong; the sentence names file, entry and field.
    """
    folder = benchmarks_folder(runs_root)
    declared: dict[str, BenchmarkChoice] = {}
    for path in sorted(folder.glob("*.yaml")):
        for choice in _entries(path):
            if choice.name in declared:
                raise SpecError(f"{path}: {choice.name} is declared in another file already; rename one of them.")
            declared[choice.name] = choice
    sources = {choice.source for choice in declared.values()}
    for path in sorted(folder.glob("*")):
        name = next((path.name.removesuffix(suffix) for suffix in FILE_SUFFIXES if path.name.endswith(suffix)), "")
        if BENCHMARK_NAME.fullmatch(name) and str(path.absolute()) not in sources and name not in load_protocols():
            declared.setdefault(name, BenchmarkChoice(name=name, source=str(path.absolute())))
    return declared


def choose_benchmark(given: Mapping[str, object], declared: Mapping[str, BenchmarkChoice]) -> dict[str, object]:
    """Return the fields of a benchmark to run: those given, else those that the user declared under its name.

    Raises:
        SpecError: The name is neither the paper's nor declared, and no source is given.
    """
    name, wanted = str(given.get("name")), {key: value for key, value in given.items() if value is not None}
    if name in declared:
        return declared[name].model_dump(exclude_unset=True) | wanted
    if "source" not in wanted and name not in load_protocols():
        known = ", ".join([*load_protocols(), *declared])
        raise SpecError(
            f"benchmarks: expected some of {known}, got {name!r}; for data of your own name its file, as in "
            f"{name}=FILE."
        )
    return wanted


def _entries(path: Path) -> Iterator[BenchmarkChoice]:
    for name, fields in read_mapping(path).items():
        if not isinstance(fields, dict):
            raise SpecError(f"{path}: {name}: expected fields such as source, got {str(fields)[:60]!r}.")
        choice = checked(BenchmarkChoice, {**fields, "name": name}, f"{path}: {name}")
        if name in load_protocols():
            raise SpecError(f"{path}: {name}: is one of the paper's benchmarks; choose another name.")
        if choice.source is None:
            raise SpecError(f"{path}: {name}.source: expected a file or a Hugging Face data set, got none.")
        beside = path.parent / str(choice.source)
        yield choice.model_copy(update={"source": str(beside.absolute())}) if beside.exists() else choice
