"""The components of one run, and scores during training: questions and benchmarks, graded as rewards are.

Scores are recorded as evaluations of the run, in another table than benchmark scores.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from exgrpo.jobs.runs.control import Control, Phase
from exgrpo.jobs.specs.base import ValidationBenchmark
from exgrpo.jobs.specs.train import TrainSpec
from exgrpo.jobs.tasks.grading.reward_function import Grade, Response, RewardFunction
from exgrpo.jobs.training.reward_parts import RewardParts
from exgrpo.jobs.training.run_health import VERL_MAX_GAP
from exgrpo.jobs.training.templates import PromptTokenizer
from exgrpo_core.engine import PolicyEngine
from exgrpo_core.recording.recorder import EvaluationRecord, RunRecorder
from exgrpo_core.types import Experience, Question


class TrainingEngine(PolicyEngine, Protocol):
    """A policy engine that also evaluates, saves and restores."""

    def generate_for_evaluation(
        self, questions: Sequence[Question], num_samples: int, temperature: float, max_new_tokens: int, seed: int
    ) -> list[list[Response]]:
        """Return `num_samples` responses a question, without changing the state of the training sampler."""
        ...

    def save(self, directory: Path) -> None:
        """Write model, optimizer and sampler into `directory`."""
        ...

    def restore(self, directory: Path) -> None:
        """Continue exactly as the engine that was saved there."""
        ...


BenchmarkReader = Callable[[TrainSpec, PromptTokenizer], dict[str, list[Question]]]
"""Returns the questions of the benchmarks that a specification validates on, as its model is asked them."""


def no_benchmarks(_spec: TrainSpec, _tokenizer: PromptTokenizer) -> dict[str, list[Question]]:
    """Return no benchmarks, as runs validate that name none."""
    return {}


@dataclass(frozen=True, slots=True)
class RunComponents:
    """Engine, grader and data of one run."""

    engine: TrainingEngine
    reward: RewardFunction
    questions: Sequence[Question]
    held_out: Sequence[Question]
    external: dict[int, Experience]
    benchmarks: Mapping[str, Sequence[Question]] = field(default_factory=dict)
    """Questions of benchmarks that are scored during training, by the benchmark's name."""
    reward_parts: RewardParts | None = None
    """The parts of the reward; None where it is the answer's alone."""
    unknown_token_id: int | None = None
    """The token in prompts for texts that the tokenizer does not know, where it has one."""
    max_gap: float = VERL_MAX_GAP
    """Most nats between log-probs of sampler and trainer, in the mean of each of an attempt's first steps."""

    def record_start(self, recorder: RunRecorder) -> None:
        """Record the questions that the run trains on and is scored on, or compare them with those of its beginning.

        Raises:
            TrainingError: They changed since.
        """
        for question_set, questions in {
            "training": self.questions,
            "held_out": self.held_out,
            **self.benchmarks,
        }.items():
            recorder.questions(questions, question_set)


logger = logging.getLogger(__name__)

EVALUATION_SEED = 7919
"""Seed of evaluations, the same at every step and in every run."""


class Validator:
    """Scores the policy as the specification says, and records the scores."""

    def __init__(self, spec: TrainSpec, components: RunComponents, recorder: RunRecorder, control: Control) -> None:
        self._spec = spec
        self._components = components
        self._recorder = recorder
        self._control = control

    def evaluate(self, step: int, *, is_end: bool) -> None:
        """Score held-out questions and benchmarks as configured, training questions at both ends of training only."""
        validation = self._spec.validation
        if not is_end and (validation.interval is None or step % validation.interval):
            return
        with self._control.phase(Phase.EVALUATION):
            if is_end:
                self._evaluate_set(step, "training", self._components.questions[: validation.num_training_questions])
            self._evaluate_set(step, "held_out", self._components.held_out)
            for name, questions in self._components.benchmarks.items():
                self._evaluate_set(step, name, questions)

    def _evaluate_set(self, step: int, question_set: str, questions: Sequence[Question]) -> None:
        if not questions:
            return
        validation, began_at = self._spec.validation, time.perf_counter()
        benchmark = validation.benchmarks.get(question_set, ValidationBenchmark())
        num_samples = benchmark.samples_per_question or validation.samples_per_question
        temperature = validation.temperature if benchmark.temperature is None else benchmark.temperature
        responses = self._components.engine.generate_for_evaluation(
            questions,
            num_samples,
            temperature,
            self._spec.algorithm.max_response_tokens,
            EVALUATION_SEED,
        )
        verdicts = self._components.reward.grade(
            [question for question in questions for _ in range(num_samples)],
            [response for sampled in responses for response in sampled],
        )
        is_correct = [verdict.outcome == Grade.CORRECT.value for verdict in verdicts]
        num_correct = [sum(is_correct[i : i + num_samples]) for i in range(0, len(is_correct), num_samples)]
        record = EvaluationRecord(
            step=step,
            question_set=question_set,
            question_ids=[question.question_id for question in questions],
            num_correct=num_correct,
            samples_per_question=num_samples,
            temperature=temperature,
            seconds=time.perf_counter() - began_at,
        )
        self._recorder.evaluation(record)
        logger.info("step %d: %s Avg@%d %.3f", step, question_set, num_samples, record.avg_at_n)
