"""The training loop: `exgrpo_step` on an engine, with evaluation, checkpoints, recording and a stop at any step."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from exgrpo_core.algorithm import exgrpo_step
from exgrpo_core.engine import PolicyEngine
from exgrpo_core.experience_management.collection import CORRECT_REWARD
from exgrpo_core.experience_management.corruption import BufferCorruptionError
from exgrpo_core.state import ExGRPOState
from exgrpo_core.types import Experience, Question
from jobs.control import Control, TrainingError
from jobs.engines.reward import Response, RewardFunction
from jobs.recorder import EvaluationRecord, RunRecorder
from jobs.specs import TrainSpec
from jobs.status import RunStatus
from jobs.training.checkpoint import (
    Checkpoint,
    DamagedCheckpointError,
    open_newest,
    prune_checkpoints,
    save_checkpoint,
)

logger = logging.getLogger(__name__)

EVALUATION_SEED = 7919
"""Evaluations sample with seeds of their own, the same at every step and in every run."""


class TrainingEngine(PolicyEngine, Protocol):
    """A policy engine that a whole run needs: it also evaluates, saves and restores."""

    def generate_for_evaluation(
        self, questions: Sequence[Question], num_samples: int, temperature: float, max_new_tokens: int, seed: int
    ) -> list[list[Response]]:
        """Return `num_samples` responses a question, without disturbing the training sampler."""
        ...

    def save(self, directory: Path) -> None:
        """Write model, optimizer and sampler into `directory`."""
        ...

    def restore(self, directory: Path) -> None:
        """Go on exactly as the engine that was saved there."""
        ...


@dataclass(frozen=True, slots=True)
class RunParts:
    """What the composition root puts together for one run."""

    engine: TrainingEngine
    reward: RewardFunction
    questions: Sequence[Question]
    held_out: Sequence[Question]
    external: dict[int, Experience]


class TrainingLoop:
    """One attempt of one run, from its newest whole checkpoint (or the start) to its last step."""

    def __init__(
        self, spec: TrainSpec, run_directory: Path, parts: RunParts, recorder: RunRecorder, control: Control
    ) -> None:
        self.spec = spec
        self.parts = parts
        self.recorder = recorder
        self.control = control
        self.segments = run_directory / "buffer"
        self.checkpoints = run_directory / "checkpoints"
        self.segments.mkdir(parents=True, exist_ok=True)
        self.checkpoints.mkdir(parents=True, exist_ok=True)

    def run(self) -> RunStatus:
        """Train until the last step or until a stop is asked for; return `succeeded` or `stopped`."""
        self.recorder.questions(self.parts.questions, "training")
        self.recorder.questions(self.parts.held_out, "held_out")
        state, is_new = self._open_state()
        self.control.heartbeat(state.step)
        if is_new:
            self._evaluate(0)
        saved_step = None if is_new else state.step
        while state.step < self.spec.num_steps:
            if self.control.stop_requested():
                if saved_step != state.step:
                    self._save(state)
                return RunStatus.STOPPED
            report = exgrpo_step(state, self.parts.engine, self.spec.algorithm)
            self.recorder.step(report)
            for notice in report.notices:
                logger.warning("step %d: %s", report.step, notice)
            self._log_step(report.metrics, state.step)
            self.control.heartbeat(state.step)
            self._evaluate(state.step)
            if state.step % self.spec.checkpoint_interval == 0 or state.step == self.spec.num_steps:
                self._save(state)
                saved_step = state.step
        return RunStatus.SUCCEEDED

    def _open_state(self) -> tuple[ExGRPOState, bool]:
        config, parts = self.spec.algorithm, self.parts
        try:
            newest = open_newest(self.checkpoints, self._read_state)
        except DamagedCheckpointError as error:
            raise TrainingError(str(error)) from error
        if newest is None:
            return ExGRPOState.create(self.segments, parts.questions, config, parts.external), True
        checkpoint, state = newest
        logger.info("resuming from step %d", checkpoint.step)
        parts.engine.restore(checkpoint.policy)
        return state, False

    def _read_state(self, checkpoint: Checkpoint) -> ExGRPOState:
        config, parts = self.spec.algorithm, self.parts
        try:
            state = ExGRPOState.restore(self.segments, checkpoint.experience, parts.questions, config, parts.external)
        except BufferCorruptionError as error:
            raise DamagedCheckpointError(str(error)) from error
        if state.step != checkpoint.step:
            raise DamagedCheckpointError(f"{checkpoint.path} holds the state of step {state.step}")
        return state

    def _save(self, state: ExGRPOState) -> None:
        def write(checkpoint: Checkpoint) -> None:
            self.parts.engine.save(checkpoint.policy)
            state.save(checkpoint.experience)

        checkpoint = save_checkpoint(self.checkpoints, state.step, write)
        self.recorder.checkpoint(state.step, checkpoint.path)
        prune_checkpoints(self.checkpoints, self.spec.num_checkpoints_kept)
        logger.info("step %d: checkpoint written", state.step)

    def _evaluate(self, step: int) -> None:
        """Score held-out questions as configured, training questions before and after training only."""
        validation = self.spec.validation
        is_end = step in (0, self.spec.num_steps)
        if is_end:
            self._evaluate_set(step, "training", self.parts.questions[: validation.num_training_questions])
        if is_end or (validation.interval is not None and step % validation.interval == 0):
            self._evaluate_set(step, "held_out", self.parts.held_out)

    def _evaluate_set(self, step: int, question_set: str, questions: Sequence[Question]) -> None:
        if not questions:
            return
        validation, began_at = self.spec.validation, time.perf_counter()
        num_samples = validation.samples_per_question
        responses = self.parts.engine.generate_for_evaluation(
            questions,
            num_samples,
            validation.temperature,
            self.spec.algorithm.max_response_tokens,
            EVALUATION_SEED,
        )
        verdicts = self.parts.reward.grade(
            [question for question in questions for _ in range(num_samples)],
            [response for sampled in responses for response in sampled],
        )
        is_correct = [verdict.reward >= CORRECT_REWARD for verdict in verdicts]
        num_correct = [sum(is_correct[i : i + num_samples]) for i in range(0, len(is_correct), num_samples)]
        record = EvaluationRecord(
            step=step,
            question_set=question_set,
            question_ids=[question.question_id for question in questions],
            num_correct=num_correct,
            samples_per_question=num_samples,
            temperature=validation.temperature,
            seconds=time.perf_counter() - began_at,
        )
        self.recorder.evaluation(record)
        logger.info("step %d: %s Avg@%d %.3f", step, question_set, num_samples, record.avg_at_n)

    def _log_step(self, metrics: dict[str, float], step: int) -> None:
        logger.info(
            "step %d/%d: reward %.3f, entropy %.3f, replayed %d, buffer %d, retired %d, %.2f s",
            step,
            self.spec.num_steps,
            metrics["reward/mean"],
            metrics.get("policy/entropy", float("nan")),
            metrics["replay/num_replayed"],
            metrics["buffer/num_questions"],
            metrics["buffer/num_retired"],
            metrics["seconds/step"],
        )
