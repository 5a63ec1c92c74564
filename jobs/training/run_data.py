"""A run's questions, read or made, its initial model and reward function, for every engine."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from exgrpo.jobs.runs.control import StoppedBeforeStartError
from exgrpo.jobs.specs.train import (
    CHAINS_SOURCE,
    CHAINS_WARM_MODEL,
    DEFAULT_NUM_MADE,
    DataSpec,
    TrainSpec,
)
from exgrpo.jobs.tasks.grading.rewards import TASKS, BuiltInTask
from exgrpo.jobs.training.data_rows import DataError
from exgrpo.jobs.training.dataset import DataSource, Rows, encode_made, encode_rows, leak_notices, read_rows
from exgrpo.jobs.training.pretrained.conversion import prepare_model
from exgrpo.jobs.training.pretrained.sources import cache_directory
from exgrpo.jobs.training.templates import PromptTokenizer, TemplateName
from exgrpo.jobs.training.warm_start import WarmStartSettings, warm_model
from exgrpo_core.types import Question

logger = logging.getLogger(__name__)


def open_data(spec: TrainSpec, should_stop: Callable[[], bool] | None = None) -> "RunData":
    """Read the data of a specification, and make its model if it is one that is made or converted on this machine.

    Raises:
        DataError: Data cannot be used; the message names the file, row or setting.
        ModelSourceError: The model cannot be downloaded or converted.
        StoppedBeforeStartError: `should_stop` became true while the model was made.
    """
    task = TASKS.get(spec.data.source)
    if task is not None:
        is_warm = spec.model.source == CHAINS_WARM_MODEL
        model = str(_warm_chains_model(spec, should_stop)) if is_warm else prepare_model(spec.model.source)
        return TaskData(task, spec.data, spec.algorithm.max_prompt_tokens, model)
    source = DataSource.of(spec.data)
    rows = read_rows(source)
    model = prepare_model(spec.model.source)
    return FileData(spec.data, source, rows, spec.algorithm.max_prompt_tokens, model)


@dataclass(frozen=True, slots=True)
class TaskData:
    """Questions of a built-in task, made once a tokenizer is loaded."""

    task: BuiltInTask
    spec: DataSpec
    max_prompt_tokens: int
    model_source: str

    def encode(self, tokenizer: PromptTokenizer) -> tuple[list[Question], list[Question]]:
        """Return the questions to train on and those held out, in the prompt template; `chains` are whole prompts.

        Raises:
            DataError: A prompt is too long, or there are too few questions.
        """
        data = self.spec
        num_questions = data.num_questions or DEFAULT_NUM_MADE
        try:
            made = self.task.make_questions(data, num_questions, data.num_held_out, tokenizer)
        except ValueError as error:
            raise DataError(f"{error}", "data") from error
        if data.source != CHAINS_SOURCE:
            source = DataSource(data.source, template=TemplateName(data.template))
            made = encode_made(made, source, tokenizer, self.max_prompt_tokens)
        return made[:num_questions], made[num_questions:]


@dataclass(frozen=True, slots=True)
class FileData:
    """Rows of a data set."""

    spec: DataSpec
    source: DataSource
    rows: Rows
    max_prompt_tokens: int
    model_source: str

    def first(self, num_questions: int) -> "FileData":
        """Return the first so many questions as all of the data; a file with fewer rows gives those it has."""
        num_wanted = min(num_questions, len(self.rows.rows))
        spec = self.spec.model_copy(update={"num_questions": num_wanted, "num_held_out": 0})
        return replace(self, spec=spec, source=replace(self.source, num_questions=num_wanted))

    def encode(self, tokenizer: PromptTokenizer) -> tuple[list[Question], list[Question]]:
        """Return the questions to train on and those held out; merged or dropped rows are logged.

        Raises:
            DataError: A prompt is too long, or questions are too few.
        """
        loaded, kept = encode_rows(self.rows, self.source, tokenizer, self.max_prompt_tokens)
        for notice in kept.notices:
            logger.warning("%s", notice)
        data = self.spec
        num_questions = len(loaded) - data.num_held_out if data.num_questions is None else data.num_questions
        if num_questions < 1:
            raise DataError(
                f"{self.source.origin}: has too few usable questions: {len(loaded):,}, expected more than "
                f"data.num_held_out ({data.num_held_out:,})."
            )
        return loaded[:num_questions], loaded[num_questions:]


RunData = TaskData | FileData
"""Questions to encode once the model's tokenizer is loaded; `model_source` is the model to start from."""


def log_leaks(questions: Sequence[Question], benchmarks: Mapping[str, Sequence[Question]]) -> None:
    """Log how many questions of a run's benchmarks are trained on."""
    for notice in leak_notices(questions, benchmarks):
        logger.warning("%s", notice)


def log_first_prompt(questions: Sequence[Question], tokenizer: Any) -> None:  # noqa: ANN401 (any Hugging Face tokenizer)
    """Log one whole prompt as the model gets it, special tokens included."""
    logger.info("The first prompt, as the model gets it:\n%s", tokenizer.decode(questions[0].prompt_ids.tolist()))


def _warm_chains_model(spec: TrainSpec, should_stop: Callable[[], bool] | None = None) -> Path:
    """Return the folder of the warm model for chains like these, making it if it is not in the cache."""
    data, model = spec.data, spec.model
    # Every fourth seed: those of the runs in docs/studies.
    seed, last_errors = 4 * model.warm_seed, model.demonstrator_errors
    settings = WarmStartSettings(max_operations=max(10, data.max_operations), seed=seed, last_error_scale=last_errors)
    if data.modulus != settings.modulus:  # ten times as many facts: more steps, on chains of the lengths asked for
        settings = replace(
            settings,
            modulus=data.modulus,
            max_operations=data.max_operations,
            num_steps=3 * settings.num_steps,
        )
    return warm_model(settings, cache_directory(), _warm_start_progress(should_stop))


def _warm_start_progress(should_stop: Callable[[], bool] | None) -> Callable[[int, int], None]:
    def progress(num_done: int, num_all: int) -> None:
        if should_stop is not None and should_stop():
            raise StoppedBeforeStartError
        if num_done % 100 == 0 or num_done == num_all:
            logger.info("warm start: %d of %d", num_done, num_all)

    return progress
