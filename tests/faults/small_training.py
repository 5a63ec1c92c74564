"""Whole training runs in milliseconds: the real loop, buffer, recorder and checkpoints around a policy of 8 numbers.

The policy's weights follow from everything that an update is given and decide what is sampled next, so that one draw
or token that differs makes all that follows differ.
"""

import contextlib

import numpy as np
from safetensors.numpy import load_file, save_file

from exgrpo.jobs.specs.train import TrainSpec, ValidationSpec
from exgrpo.jobs.tasks.grading.reward_function import Grade, Response, Verdict
from exgrpo.jobs.training.run_components import RunComponents
from exgrpo.jobs.training.training_loop import TrainingLoop
from exgrpo_core.recording.file_recorder import FileRecorder
from exgrpo_core.recording.run_status import RunStatus
from exgrpo_core.types import RolloutGroup, Trajectory, TrajectoryScores
from tests.exgrpo_core.builders import question, small_config

NUM_QUESTIONS = 20


class EightNumbers:
    """A policy of eight weights and a random generator."""

    def __init__(self):
        self.weights = np.linspace(-0.5, 0.5, 8)
        self.rng = np.random.default_rng(3)

    def rollout(self, requests):
        return [
            RolloutGroup(asked.question, [self._trajectory(asked.question) for _ in range(asked.num_rollouts)])
            for asked in requests
        ]

    def _trajectory(self, asked):
        ids = self.rng.integers(0, 50, int(self.rng.integers(1, 9)), dtype=np.int32)
        chance = 1.0 / (1.0 + np.exp(-self.weights[asked.index % 8] - asked.index / 20))
        reward = float(self.rng.random() < chance)
        text = f"trajectory {ids.tolist()}"
        return Trajectory(asked.index, ids, self._log_probs(ids), reward, text, entropies=-self._log_probs(ids))

    def _log_probs(self, ids):
        return -np.exp(self.weights[ids % 8]).astype(np.float32)

    def entropies(self, questions, candidates):
        assert all(asked.index == stored.question_index for asked, stored in zip(questions, candidates, strict=True))
        scores = [self._log_probs(stored.token_ids) for stored in candidates]
        return TrajectoryScores(scores, [-score for score in scores])

    def update(self, mini_batches, _objective):
        loss = 0.0
        for row in (row for mini_batch in mini_batches for row in mini_batch.rows):
            ratios = np.exp(self._log_probs(row.token_ids) - row.behavior_log_probs)
            loss += row.advantage * float(ratios.sum())
            np.add.at(self.weights, row.token_ids % 8, 0.002 * row.advantage * ratios)
        self.weights = np.tanh(self.weights)
        return {"loss/total": loss, "optim/gradient_norm": float(np.abs(self.weights).sum())}

    def generate_for_evaluation(self, questions, num_samples, temperature, max_new_tokens, seed):
        del temperature, max_new_tokens
        rng = np.random.default_rng(seed)
        ids = [[rng.integers(0, 50, 3, dtype=np.int32) for _ in range(num_samples)] for _ in questions]
        return [[Response(str(self.weights[sample % 8].sum() > 0), sample, False) for sample in some] for some in ids]

    def save(self, directory):
        directory.mkdir(parents=True)
        state = self.rng.bit_generator.state
        numbers = [state["state"]["state"], state["state"]["inc"], state["has_uint32"], state["uinteger"]]
        words = np.array([[number >> 64, number & (2**64 - 1)] for number in numbers], dtype=np.uint64)
        save_file({"weights": self.weights, "generator": words}, directory / "model.safetensors")

    def restore(self, directory):
        tensors = load_file(directory / "model.safetensors")
        self.weights = tensors["weights"]
        state, inc, has_uint32, uinteger = ((int(high) << 64) | int(low) for high, low in tensors["generator"])
        words = {"state": {"state": state, "inc": inc}, "has_uint32": has_uint32, "uinteger": uinteger}
        self.rng.bit_generator.state = self.rng.bit_generator.state | words


class TrueIsCorrect:
    """Grades the texts of `EightNumbers`."""

    def grade(self, questions, responses):
        del questions
        return [
            Verdict(1.0, Grade.CORRECT) if response.text == "True" else Verdict(0.0, Grade.WRONG)
            for response in responses
        ]


class StepControl:
    """Asks for a stop once `stop_at` steps are done, and runs `at_step` after each."""

    def __init__(self, stop_at=None, at_step=lambda _: None):
        self._stop_at = stop_at
        self._at_step = at_step
        self._step = 0

    def stop_requested(self):
        return self._stop_at is not None and self._step >= self._stop_at

    def heartbeat(self, step):
        self._step = step
        self._at_step(step)

    def phase(self, _phase):
        return contextlib.nullcontext()


def small_spec(num_steps=12, checkpoint_interval=3, num_checkpoints_kept=3):
    """Return a run of 8 of 20 questions a step: an epoch ends at nearly every third step."""
    return TrainSpec(
        name="small",
        algorithm=small_config(),
        num_steps=num_steps,
        checkpoint_interval=checkpoint_interval,
        num_checkpoints_kept=num_checkpoints_kept,
        validation=ValidationSpec(interval=4, samples_per_question=2, num_training_questions=3),
    )


def small_parts(engine):
    questions = [question(index) for index in range(NUM_QUESTIONS)]
    return RunComponents(engine, TrueIsCorrect(), questions, questions[:4], {})


def small_loop(run, control, recorder, engine=None):
    return TrainingLoop(run.spec(), run.path, small_parts(engine or EightNumbers()), recorder, control)


def train(run, control=None, engine=None):
    recorder = FileRecorder(run, run.claim_attempt(), run.spec().recording)
    try:
        recorder.status(RunStatus.RUNNING)
        status = small_loop(run, control or StepControl(), recorder, engine).run()
        recorder.status(status)
    finally:
        recorder.close()
    return status
