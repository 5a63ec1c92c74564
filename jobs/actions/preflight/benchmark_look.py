"""A user's own benchmark before it is scored: its first question as it is asked, and files that were handed in."""

import re
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from exgrpo.jobs.actions.preflight.local_sources import resolve_source
from exgrpo.jobs.evaluation.benchmark_questions import iterate_rows, load_benchmark
from exgrpo.jobs.evaluation.protocols import benchmarks_folder, graded_as, load_protocols, protocol_of
from exgrpo.jobs.runs.people import Role, needs
from exgrpo.jobs.specs.base import DeclaredKind
from exgrpo.jobs.specs.evaluation import BENCHMARK_NAME, BenchmarkChoice
from exgrpo.jobs.training.data_rows import FILE_SUFFIXES, DataError, wrong_suffix
from exgrpo.jobs.training.templates import TemplateName, render_prompt
from exgrpo_core.durable_files import write_whole

_MAX_NAME = 28


@dataclass(frozen=True, slots=True)
class BenchmarkLook:
    """A data file as a benchmark: its name, its first question as asked, and its gold answer as the grader reads it.

    `papers` are the paper's benchmarks whose questions the file holds; then it is their source, not one of its own.
    """

    name: str
    source: str
    papers: tuple[str, ...]
    num_questions: int
    prompt: str
    gold: str
    graded_as: str
    notices: tuple[str, ...]


@needs(Role.OPERATOR)
def look_at_benchmark(
    runs_root: Path, source: str, template: str = "paper", answer_kind: DeclaredKind = "auto"
) -> BenchmarkLook:
    """Read a whole file or data set as a benchmark.

    Raises:
        SpecError: There is no such file.
        DataError: It cannot be read as questions with gold answers; the message names the row.
    """
    found = resolve_source("benchmarks.source", source)
    held = {str(row.get("data_source", "")).lower().replace("-", "_") for _, row in iterate_rows(found, None)}
    papers = tuple(name for name, protocol in load_protocols().items() if held.intersection(protocol.data_sources))
    is_kept = Path(found).parent == benchmarks_folder(runs_root).resolve()
    choice = BenchmarkChoice(name=papers[0] if papers else _name_of(found, is_kept=is_kept), source=found)
    choice = graded_as(choice, answer_kind)
    loaded = load_benchmark(choice, protocol_of(choice))
    first = loaded.questions[0]
    as_messages = template == TemplateName.CHAT
    prompt = first.text if as_messages else render_prompt(TemplateName(template), first.messages)
    return BenchmarkLook(
        choice.name, found, papers, len(loaded.questions), prompt, first.answer, first.answer_kind,
        tuple(loaded.notices),
    )  # fmt: skip


@needs(Role.OPERATOR)
def keep_benchmark_file(runs_root: Path, file_name: str, content: bytes) -> str:
    """Put a file that was handed in among the user's benchmarks and return its path; a file of other content stays.

    Raises:
        DataError: It cannot be read as questions with gold answers; nothing is kept.
    """
    suffix = next((suffix for suffix in FILE_SUFFIXES if file_name.endswith(suffix)), None)
    if suffix is None:
        raise wrong_suffix(file_name)
    with TemporaryDirectory(prefix="exgrpo-benchmark-") as folder:
        tried = Path(folder, f"{_name_of(file_name)}{suffix}")
        tried.write_bytes(content)
        look_at_benchmark(runs_root, str(tried))
        kept = benchmarks_folder(runs_root).absolute()
        kept.mkdir(parents=True, exist_ok=True)
        names = [tried.name, *(f"{_name_of(file_name)}_{number}{suffix}" for number in range(2, 1000))]
        for path in (kept / name for name in names):
            if not path.exists():
                write_whole(path, content)
                return str(path)
            if path.read_bytes() == content:
                return str(path)
    raise DataError(f"{file_name}: there are too many benchmarks of this name; give the file another.")


def _name_of(source: str, *, is_kept: bool = False) -> str:
    """Return the name of a file's benchmark: its own in the characters of a name, none of the paper's."""
    stem = source.rpartition("/")[2].split(".")[0]
    if is_kept and BENCHMARK_NAME.fullmatch(stem):
        return stem
    name = re.sub(r"[^a-z0-9]+", "_", stem.lower()).strip("_")[:_MAX_NAME] or "mine"
    return f"my_{name}" if name in load_protocols() else name
