"""Questions of benchmarks that a training run is scored on while it trains."""

import logging
import random

from exgrpo_core.types import Question
from jobs.evaluation.protocols import protocol_of
from jobs.evaluation.questions import BenchmarkQuestion, load_benchmark
from jobs.specs.evaluation import BenchmarkChoice
from jobs.specs.train import TrainSpec
from jobs.tasks.questions import build_question
from jobs.training.data_rows import DataError
from jobs.training.templates import PromptTokenizer, TemplateName, encode_messages

logger = logging.getLogger(__name__)

FIRST_INDEX = 1_000_000_000
"""Indices of these questions are beyond those of every data set."""
_SEED = 2200
"""The draw is the same in every run."""


def read_validation_questions(spec: TrainSpec, tokenizer: PromptTokenizer) -> dict[str, list[Question]]:
    """Return the questions of `validation.benchmarks`, each in its own template, else in that of the training data.

    Prompts longer than the longest allowed are left out, with a warning.

    Raises:
        DataError: A benchmark cannot be read or is not what its protocol says, or the model has not its template.
    """
    chosen: list[tuple[str, BenchmarkQuestion]] = []
    for name, benchmark in spec.validation.benchmarks.items():
        choice = BenchmarkChoice(name=name, **dict(benchmark))
        chosen += [(name, question) for question in load_benchmark(choice, protocol_of(choice)).questions]
    num_wanted = spec.validation.num_benchmark_questions
    if num_wanted is not None and num_wanted < len(chosen):
        chosen = [chosen[index] for index in sorted(random.Random(_SEED).sample(range(len(chosen)), num_wanted))]
    questions: dict[str, list[Question]] = {name: [] for name in spec.validation.benchmarks}
    for index, (name, item) in enumerate(chosen, start=FIRST_INDEX):
        template = TemplateName(spec.validation.benchmarks[name].template or spec.data.template)
        try:
            text, prompt_ids = encode_messages(template, item.messages, tokenizer)
        except ValueError as error:
            raise DataError(f"validation.benchmarks.{name}.{error}") from error
        if len(prompt_ids) > spec.algorithm.max_prompt_tokens:
            logger.warning("%s: question %s has %d prompt tokens, left out.", name, item.question_id, len(prompt_ids))
            continue
        metadata = {"data_source": name, "answer_kind": item.answer_kind, "question": item.text}
        questions[name].append(build_question(index, item.question_id, text, item.answer, prompt_ids, metadata))
    return questions
