"""Preview of a specification's data before a run: first prompts and lengths of the questions."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from jobs.grading.built_in_tasks import TASKS, BuiltInTask
from jobs.preflight.model_shapes import model_file
from jobs.specs.train import DataSpec, TrainSpec
from jobs.training.data_rows import DataError, check_row, iterate_raw_rows
from jobs.training.templates import TemplateName, render_prompt

MAX_ROWS = 1000
"""Most rows that are read; the histogram is of these."""
TOKENIZER_FILE = "tokenizer.json"


@dataclass(frozen=True, slots=True)
class PromptPreview:
    """One question as the model will see it."""

    prompt: str
    answer: str
    graded_as: str


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


def preview_data(spec: TrainSpec, num_shown: int = 3) -> DataPreview:
    """Return the first questions of a specification; of a data set on the hub only their rows are downloaded.

    Raises:
        DataError: The data cannot be read, or one of its first rows is bad; one sentence names file, row and field.
    """
    prompts = _of_task(TASKS[spec.data.source], spec.data) if spec.data.source in TASKS else _rows(spec.data)
    texts = [prompt.prompt for prompt in prompts]
    lengths = _token_lengths(texts, spec)
    notice = ""
    if spec.data.template == "chat":
        notice = "The model's chat template is applied to these messages when the run starts."
    return DataPreview(tuple(prompts[:num_shown]), lengths or tuple(map(len, texts)), lengths is not None, notice)


def _of_task(task: BuiltInTask, data: DataSpec) -> list[PromptPreview]:
    made = task.make_questions(data, min(data.num_questions or MAX_ROWS, MAX_ROWS), _Characters())
    return [PromptPreview(item.prompt_text, item.answer, task.graded_as) for item in made]


def _rows(data: DataSpec) -> list[PromptPreview]:
    origin, template = Path(data.source).name, TemplateName(data.template)
    previews = []
    rows = iterate_raw_rows(data.source, data.split, streams=True)
    for number, raw in islice(rows, min(data.num_questions or MAX_ROWS, MAX_ROWS)):
        row = check_row(origin, number, raw, data.answer_kind)
        if template is TemplateName.CHAT:
            prompt = "\n\n".join(f"{message['role']}: {message['content']}" for message in row.messages)
        else:
            prompt = render_prompt(template, row.messages)
        previews.append(PromptPreview(prompt, row.answer, row.answer_kind))
    if not previews:
        raise DataError(f"{origin}: has no rows.")
    return previews


def _token_lengths(texts: Sequence[str], spec: TrainSpec) -> tuple[int, ...] | None:
    path = model_file(spec.model.source, TOKENIZER_FILE, spec.model.revision)
    if path is None:
        return None
    from tokenizers import Tokenizer  # type: ignore[import-untyped]

    return tuple(len(encoded.ids) for encoded in Tokenizer.from_file(str(path)).encode_batch(list(texts)))
