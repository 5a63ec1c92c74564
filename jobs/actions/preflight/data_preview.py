"""What is seen of data before it is used: the first prompts of a run, rows of rollouts, a question of a benchmark."""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from exgrpo.jobs.actions.preflight.local_sources import resolve_source
from exgrpo.jobs.actions.preflight.looks import Look, ModelLook, look_at_model, read_tokenizer, render_chat_prompts
from exgrpo.jobs.evaluation.benchmark_questions import iterate_rows, load_benchmark
from exgrpo.jobs.evaluation.protocols import benchmarks_folder, graded_as, load_protocols, protocol_of
from exgrpo.jobs.runs.directory import WORKBENCH_FOLDER
from exgrpo.jobs.runs.people import Role, needs
from exgrpo.jobs.runs.rollout_formats.formats import RolloutFormat, UnknownRolloutsError, find_only_format
from exgrpo.jobs.runs.rollout_formats.source import RolloutSource
from exgrpo.jobs.specs.base import DeclaredKind, checked
from exgrpo.jobs.specs.evaluation import BENCHMARK_NAME, BenchmarkChoice
from exgrpo.jobs.specs.train import CHAINS_SOURCE, DataSpec, ModelSpec, SpecError, TrainSpec
from exgrpo.jobs.tasks.grading.rewards import TASKS, BuiltInTask
from exgrpo.jobs.training.data_rows import FILE_SUFFIXES, DataError, iterate_raw_rows, no_rows, wrong_suffix
from exgrpo.jobs.training.layouts import training_row
from exgrpo.jobs.training.pretrained.chat_templates import ChatTemplateError
from exgrpo.jobs.training.templates import Message, TemplateName, render_prompt
from exgrpo_core.bounded_json import UnreadableFileError
from exgrpo_core.durable_files import write_whole
from exgrpo_core.engine import describe_misfit
from exgrpo_core.recording.rows import RecordedTrajectory

MAX_ROWS = 1000
"""Most rows that are read; the histogram is of these."""
MAX_NAMED = 8
"""Most metrics that are named of a file without rollouts."""


@dataclass(frozen=True, slots=True)
class PromptPreview:
    """One question as the model will see it."""

    prompt: str
    answer: str
    grading: str


@dataclass(frozen=True, slots=True)
class DataPreview:
    """The first questions; `lengths` are of all rows read, in tokens if a tokenizer is on this machine."""

    questions: tuple[PromptPreview, ...]
    lengths: tuple[int, ...]
    is_in_tokens: bool
    notice: str = ""


class _Characters:
    """Replaces a tokenizer where only texts are needed."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:  # noqa: ARG002 - the signature of tokenizers
        return list(map(ord, text))


@dataclass(frozen=True, slots=True)
class _Conversation:
    """A question's messages before they are put into a template."""

    messages: Sequence[Message]
    answer: str
    graded_as: str


@needs(Role.OPERATOR)
def preview_data(spec: TrainSpec, num_shown: int = 3, max_rows: int = MAX_ROWS) -> DataPreview:
    """Return the first questions of a specification; of a data set on the hub only their rows are downloaded.

    Raises:
        DataError: The data cannot be read, or one of its first rows is bad; one sentence names file, row and field.
        UnreadableFileError: The model's tokenizer is damaged.
    """
    num_rows = min(spec.data.num_questions or max_rows, max_rows)
    is_task = spec.data.source in TASKS
    questions = _of_task(TASKS[spec.data.source], spec.data, num_rows) if is_task else _rows(spec.data, num_rows)
    model = look_at_model(spec.model.source, spec.model.revision)
    texts, notice = _prompts(spec, model, [item.messages for item in questions])
    previews = tuple(
        PromptPreview(text, item.answer, f"graded as {item.graded_as}")
        for text, item in zip(texts[:num_shown], questions, strict=False)
    )
    lengths = None if model.tokenizer is None else _token_lengths(texts, model.tokenizer)
    return DataPreview(previews, lengths or tuple(map(len, texts)), lengths is not None, notice)


def check_prompts(look: Look) -> None:
    """Refuse prompts that are too long, of the first questions, where data and tokenizer are on this machine.

    Raises:
        SpecError: One is longer than the longest allowed, and is not to be left out.
    """
    spec, path = look.spec, look.model.tokenizer
    data, limit = spec.data, spec.algorithm.max_prompt_tokens
    is_here = data.source in TASKS or Path(data.source).is_file()
    if not is_here or path is None or data.too_long_prompts == "drop":
        return
    changed_at = os.stat(data.source).st_mtime_ns if Path(data.source).is_file() else 0
    try:
        parts = (spec.data.model_dump_json(), spec.model.model_dump_json())
        lengths = _lengths(*parts, changed_at, path.stat().st_mtime_ns)
    except (DataError, UnreadableFileError, OSError):
        return  # said by the checks of rows and model
    prompts = ((f"question {position}", length) for position, length in enumerate(lengths, start=1))
    if misfit := describe_misfit(prompts, limit):
        text = f"of the first {len(lengths):,}, {misfit}; raise it, or set data.too_long_prompts to drop."
        raise SpecError(text, "algorithm.max_prompt_tokens")


@lru_cache(maxsize=8)
def _lengths(data: str, model: str, _data_changed_at: int, _tokenizer_changed_at: int) -> tuple[int, ...]:
    chosen = (DataSpec.model_validate_json(data), ModelSpec.model_validate_json(model))
    # What else there is changes no prompt.
    return preview_data(TrainSpec.model_construct(data=chosen[0], model=chosen[1]), num_shown=0).lengths


def _prompts(spec: TrainSpec, look: ModelLook, conversations: Sequence[Sequence[Message]]) -> tuple[list[str], str]:
    """Return the prompts and a notice where they are not yet, or perhaps not, what the model will get."""
    data, model, chat_template = spec.data, spec.model, look.chat_template
    if data.source == CHAINS_SOURCE:
        return [render_prompt(TemplateName.NONE, messages) for messages in conversations], ""
    name = TemplateName(data.template)
    if name is TemplateName.AUTO and chat_template is None and not look.has_config:
        notice = "The model's chat template, if it has one, is applied to these messages when the run starts."
        return [_with_roles(messages) for messages in conversations], notice
    template = name.resolved(chat_template is not None)
    if template is not TemplateName.CHAT:
        is_raw = template is TemplateName.NONE and chat_template is not None
        notice = "The model has a chat template, which data.template: none leaves out." if is_raw else ""
        return [render_prompt(template, messages) for messages in conversations], notice
    if chat_template is None:
        notice = "The model's chat template is applied to these messages when the run starts."
        return [_with_roles(messages) for messages in conversations], notice
    try:
        return render_chat_prompts(model.source, model.revision, chat_template, conversations), ""
    except ChatTemplateError as error:
        raise DataError(
            f"the model's chat template cannot be used ({error}); choose another one.", "data.template"
        ) from None


def _with_roles(messages: Sequence[Message]) -> str:
    return "\n\n".join(f"{message['role']}: {message['content']}" for message in messages)


def _of_task(task: BuiltInTask, data: DataSpec, num_rows: int) -> list[_Conversation]:
    made = task.make_questions(data, num_rows, 0, _Characters())
    return [
        _Conversation([{"role": "user", "content": item.prompt_text}], item.answer, task.graded_as) for item in made
    ]


def _rows(data: DataSpec, num_rows: int) -> list[_Conversation]:
    origin = Path(data.source).name
    rows = islice(iterate_raw_rows(data.source, data.split, streams=True), num_rows)
    checked = [training_row(origin, number, raw, data.answer_kind) for number, raw in rows]
    if not checked:
        raise no_rows(origin)
    return [_Conversation(row.messages, row.answer, row.answer_kind) for row in checked]


def _token_lengths(texts: Sequence[str], path: Path) -> tuple[int, ...]:
    return tuple(len(encoded.ids) for encoded in read_tokenizer(path).encode_batch(list(texts)))


def preview_rollouts(path: Path, own_format: RolloutFormat | None = None, num_shown: int = 3) -> DataPreview:
    """Return the first trajectories as prompts with their responses; lengths are of prompts, in characters.

    Raises:
        UnknownRolloutsError: There is nothing at the path, its format is not known, or no row is a rollout or metrics.
    """
    reads, source = own_format or find_only_format(path), RolloutSource(path)
    steps = list(islice(reads.read(source), MAX_ROWS))
    rows = [row for step in steps for row in step.trajectories][:MAX_ROWS]
    names = list(dict.fromkeys(name for step in steps for name in step.metrics))
    if not rows and not names:
        why = f"; the first bad row is {source.bad.sentences[0]}" if source.bad.num else "."
        raise UnknownRolloutsError(f"{path}: {reads.title}: no row is a rollout{why}")
    shown = tuple(_preview(row) for row in rows[:num_shown])
    prompts = ("\n\n".join(part.text for part in row.messages if not part.is_generated) for row in rows)
    skipped = f" Skipped: {source.bad.num:,} rows, first {source.bad.sentences[0]}" if source.bad.num else ""
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    metrics = "" if rows else f" There are no rollouts, but curves of {', '.join(names[:MAX_NAMED])}{more}."
    notice = f"Read as {reads.title}.{metrics}{skipped}"
    return DataPreview(shown, tuple(map(len, prompts)), is_in_tokens=False, notice=notice)


def _preview(row: RecordedTrajectory) -> PromptPreview:
    text = "\n\n".join(f"{message.role}: {message.text}" for message in row.messages)
    return PromptPreview(text, row.answer or "", "not graded" if row.reward is None else f"reward {row.reward:g}")


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
    return _keep(benchmarks_folder(runs_root), file_name, content, lambda path: look_at_benchmark(runs_root, path))


@needs(Role.OPERATOR)
def keep_training_file(runs_root: Path, file_name: str, content: bytes, answer_kind: object) -> str:
    """Put a file that was handed in into the workbench's folder of training data, as `keep_benchmark_file` does.

    Raises:
        DataError: Its first rows cannot be read as questions; nothing is kept.
        SpecError: There is no such kind of answer.
    """

    def look(path: str) -> object:
        return _rows(checked(DataSpec, {"source": path, "answer_kind": answer_kind}, "data"), MAX_ROWS)

    return _keep(runs_root / WORKBENCH_FOLDER / "data", file_name, content, look)


def _keep(folder: Path, file_name: str, content: bytes, check: Callable[[str], object]) -> str:
    suffix = next((suffix for suffix in FILE_SUFFIXES if file_name.endswith(suffix)), None)
    if suffix is None:
        raise wrong_suffix(file_name)
    with TemporaryDirectory(prefix="exgrpo-upload-") as tried_in:
        tried = Path(tried_in, f"{_name_of(file_name)}{suffix}")
        tried.write_bytes(content)
        check(str(tried))
        kept = folder.absolute()
        kept.mkdir(parents=True, exist_ok=True)
        names = [tried.name, *(f"{_name_of(file_name)}_{number}{suffix}" for number in range(2, 1000))]
        for path in (kept / name for name in names):
            if not path.exists():
                write_whole(path, content)
                return str(path)
            if path.read_bytes() == content:
                return str(path)
    raise DataError(f"{file_name}: there are too many files of this name; give the file another.")


def _name_of(source: str, *, is_kept: bool = False) -> str:
    """Return the name of a file's benchmark: its own in the characters of a name, none of the paper's."""
    stem = source.rpartition("/")[2].split(".")[0]
    if is_kept and BENCHMARK_NAME.fullmatch(stem):
        return stem
    name = re.sub(r"[^a-z0-9]+", "_", stem.lower()).strip("_")[:_MAX_NAME] or "mine"
    return f"my_{name}" if name in load_protocols() else name
