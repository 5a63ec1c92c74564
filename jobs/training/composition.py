"""The composition root of the embedded engine: a specification becomes model, data, grader and loop."""

import gc
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from exgrpo_core.types import Experience, Question
from jobs.control import Control, TrainingError
from jobs.engines.embedded.engine import EmbeddedEngine
from jobs.engines.embedded.model import PolicyModel, load_policy, resolve_device
from jobs.engines.embedded.optimizer import OptimSettings
from jobs.engines.errors import EngineError
from jobs.engines.reward import RewardFunction
from jobs.grading.pool import AnswerGrader
from jobs.grading.rewards import ChainsReward, MathReward
from jobs.recorder import RunRecorder
from jobs.run_directory import RunDirectory
from jobs.specs import ANSWER_FORMAT_MODEL, CHAINS_SOURCE, CHAINS_WARM_MODEL, DataSpec, OptimSpec, TrainSpec
from jobs.status import RunStatus
from jobs.tasks.chains.question_set import make_questions, split_questions
from jobs.training.answer_format import AnswerFormatSettings
from jobs.training.data_rows import DataError
from jobs.training.dataset import DataSource, encode_rows, read_rows
from jobs.training.external import load_external
from jobs.training.loop import RunParts, TrainingLoop
from jobs.training.templates import TemplateName
from jobs.training.warm_start import WarmStartSettings, warm_answer_format, warm_model

logger = logging.getLogger(__name__)

DEFAULT_NUM_CHAINS = 512
CACHE_VARIABLE = "EXGRPO_CACHE_DIR"


def cache_directory() -> Path:
    """Return where models made on this machine are kept."""
    return Path(os.environ.get(CACHE_VARIABLE, Path.home() / ".cache" / "exgrpo-workbench"))


def run_training(spec: TrainSpec, run: RunDirectory, recorder: RunRecorder, control: Control) -> RunStatus:
    """Run or resume a specification; return `succeeded` or `stopped`.

    Raises:
        TrainingError: It cannot start or go on, with one sentence why.
    """
    try:
        with open_parts(spec) as parts:
            return TrainingLoop(spec, run.path, parts, recorder, control).run()
    except (EngineError, DataError) as error:
        raise TrainingError(str(error)) from error


@contextmanager
def open_parts(spec: TrainSpec) -> Iterator[RunParts]:
    """Put together engine, grader and data of a specification, and end the grader's processes afterwards.

    Raises:
        TrainingError: Data or model cannot be used; the message names the file, row or setting.
    """
    if spec.data.source == CHAINS_SOURCE:
        yield _chains_parts(spec)
        return
    with AnswerGrader(requires_think_end=spec.data.requires_think_end) as grader:
        yield _dataset_parts(spec, MathReward(grader))


def warm_chains_model(data: DataSpec) -> Path:
    """Return the folder of the warm model for chains like these, making it if it is not in the cache."""
    settings = WarmStartSettings(modulus=data.modulus, max_operations=max(10, data.max_operations))
    return warm_model(settings, cache_directory(), _log_progress("warm start"))


def _chains_parts(spec: TrainSpec) -> RunParts:
    data = spec.data
    source = str(warm_chains_model(data)) if spec.model.source == CHAINS_WARM_MODEL else spec.model.source
    policy = load_policy(source, resolve_device(spec.model.device), spec.model.revision)
    num_questions = data.num_questions or DEFAULT_NUM_CHAINS
    made = make_questions(
        num_questions + data.num_held_out,
        data.seed,
        policy.tokenizer,
        data.min_operations,
        data.max_operations,
        data.modulus,
    )
    questions, held_out = split_questions(made, num_questions)
    return _parts(spec, policy, ChainsReward(), questions, held_out)


def _dataset_parts(spec: TrainSpec, reward: RewardFunction) -> RunParts:
    data = spec.data
    num_all = None if data.num_questions is None else data.num_questions + data.num_held_out
    template = TemplateName(data.template)
    source = DataSource(data.source, data.split, template, num_all, data.answer_kind, data.too_long_prompts)
    rows = read_rows(source)
    model = spec.model.source
    if model == ANSWER_FORMAT_MODEL:
        # Held-out texts stay unseen: the tokenizer and the warm start know the training questions only.
        num_seen = data.num_questions if data.num_questions is not None else len(rows.rows) - data.num_held_out
        texts = rows.prompt_texts(template)[:num_seen]
        model = str(warm_answer_format(texts, AnswerFormatSettings(), cache_directory(), _log_progress("warm start")))
    policy = load_policy(model, resolve_device(spec.model.device), spec.model.revision)
    loaded, rows = encode_rows(rows, source, policy.tokenizer, spec.algorithm.max_prompt_tokens)
    for notice in rows.notices:
        logger.warning("%s", notice)
    num_questions = len(loaded) - data.num_held_out if data.num_questions is None else data.num_questions
    questions, held_out = split_questions(loaded, num_questions)
    return _parts(spec, policy, reward, questions, held_out)


def _parts(
    spec: TrainSpec,
    policy: PolicyModel,
    reward: RewardFunction,
    questions: list[Question],
    held_out: list[Question],
) -> RunParts:
    engine = EmbeddedEngine(policy, reward, spec.algorithm, optim_settings(spec.optim), spec.seed)
    external: dict[int, Experience] = {}
    if spec.external_experience is not None:
        limit = spec.algorithm.max_response_tokens
        external = load_external(spec.external_experience, questions, policy.tokenizer, limit)
    # Imported modules and questions live as long as the process: kept out of every later collection, a step is shorter.
    gc.collect()
    gc.freeze()
    return RunParts(engine, reward, questions, held_out, external)


def optim_settings(spec: OptimSpec) -> OptimSettings:
    """Return the engine's optimizer settings."""
    return OptimSettings(
        learning_rate=spec.learning_rate,
        weight_decay=spec.weight_decay,
        betas=(spec.beta1, spec.beta2),
        max_gradient_norm=spec.max_gradient_norm,
        warmup_steps=spec.warmup_steps,
    )


def _log_progress(what: str) -> Callable[[int, int], None]:
    def progress(num_done: int, num_all: int) -> None:
        if num_done % 100 == 0 or num_done == num_all:
            logger.info("%s: %d of %d", what, num_done, num_all)

    return progress
