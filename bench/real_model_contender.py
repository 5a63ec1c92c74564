"""One contender of `bench.real_model` in a process of its own: it does one piece of work a line that it reads.

`python -m bench.real_model_contender NAME DTYPE QUESTIONS TOKENS` prints one line of JSON a piece of work: seconds of
processor time (`step_s`, `rollout_s`), and the most memory of the process in the step (`peak_gib`). DTYPE is what the
model is computed in, `float32` or `bfloat16`; weights are float32. `embedded` keeps freed memory, as a job's worker
does, and so does `trl_kept`; `trl` is TRL as its users start it, in bfloat16 with its autocast. TRL generates all
rollouts at once and trains on four parts, whose gradients add up: 64 at once take 20 GiB.
"""

import dataclasses
import json
import logging
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from bench.embedded_gpu import CoinReward, make_policy
from bench.stopwatch import peak_gib, reset_peak_memory
from exgrpo_core import ExGRPOState, exgrpo_step
from exgrpo_core.config import ExGRPOConfig
from exgrpo_core.engine import PolicyEngine, RolloutRequest
from exgrpo_core.methods.loading import ObjectiveSettings
from exgrpo_core.policy_optimization.mixed_batch import MiniBatch
from exgrpo_core.process_memory import keep_freed_memory
from exgrpo_core.types import Experience, Int32Array, Question, RolloutGroup, Trajectory, TrajectoryScores
from jobs.engines.embedded import backend, kv_cache, model, packing
from jobs.engines.embedded.engine import EmbeddedEngine
from jobs.engines.embedded.model import PolicyModel
from jobs.engines.embedded.packing import PrefixTree, build_prefix_tree
from jobs.engines.embedded.update import OptimSettings
from jobs.grading.reward_function import Response
from jobs.preflight.model_shapes import ModelShape

SHAPE = ModelShape(576, 1536, 30, 9, 3, vocabulary=49_152, is_tied=True, context=8192)
"""SmolLM2-135M's."""
PROMPT_TOKENS = 56
NUM_QUESTIONS = 64
ROLLOUTS = 8
FILLING_ROUNDS = 5
"""Times that each question is asked without a model, so that it has several trajectories in the replay buffer."""
LEARNING_RATE = 1e-6
RESULT = "RESULT "


def open_policy(dtype: str) -> PolicyModel:
    """Return the model with random weights, computed in `dtype`."""
    with mock.patch.object(model, "choose_dtype", return_value=getattr(torch, dtype)):
        return make_policy(SHAPE, torch.device("cpu"), SHAPE.context)


def make_questions(policy: PolicyModel) -> list[Question]:
    """Return questions whose prompts are as many digits as tokens."""
    rng = np.random.default_rng(0)
    texts = ["".join(map(str, digits)) for digits in rng.integers(0, 10, (NUM_QUESTIONS, PROMPT_TOKENS))]
    return [
        Question(i, f"q{i}", np.array(policy.tokenizer(text)["input_ids"], dtype=np.int32), text, "")
        for i, text in enumerate(texts)
    ]


def make_config(num_questions: int, num_tokens: int, experience_ratio: float) -> ExGRPOConfig:
    """Return the paper's settings at this size with one optimizer step, without entropy bonus as in TRL."""
    return ExGRPOConfig(
        batch_size=num_questions,
        mini_batch_size=num_questions,
        rollouts_per_question=ROLLOUTS,
        max_prompt_tokens=PROMPT_TOKENS,
        max_response_tokens=num_tokens,
        experience_ratio=experience_ratio,
        entropy_coefficient=0.0,
        start_pass_rate=None,
    )


class TimedEngine:
    """Passes everything on and takes the processor time of each call."""

    def __init__(self, engine: PolicyEngine) -> None:
        self._engine = engine
        self.seconds: dict[str, float] = {}

    def rollout(self, requests: Sequence[RolloutRequest]) -> list[RolloutGroup]:
        """Pass on."""
        with self._timed("rollout"):
            return self._engine.rollout(requests)

    def entropies(self, questions: Sequence[Question], candidates: Sequence[Experience]) -> TrajectoryScores:
        """Pass on."""
        with self._timed("score"):
            return self._engine.entropies(questions, candidates)

    def update(self, mini_batches: Sequence[MiniBatch], objective: ObjectiveSettings) -> dict[str, float]:
        """Pass on."""
        with self._timed("update"):
            return self._engine.update(mini_batches, objective)

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        began_at = time.process_time()
        yield
        self.seconds[name] = time.process_time() - began_at


class InstantEngine:
    """Answers at once with random tokens: it fills a replay buffer."""

    def __init__(self, num_tokens: int) -> None:
        self._rng = np.random.default_rng(0)
        self._num_tokens = num_tokens

    def rollout(self, requests: Sequence[RolloutRequest]) -> list[RolloutGroup]:
        """Return random trajectories, of which coins call some correct."""
        return [
            RolloutGroup(item.question, [self._trajectory(item.question) for _ in range(item.num_rollouts)])
            for item in requests
        ]

    def entropies(self, questions: Sequence[Question], candidates: Sequence[Experience]) -> TrajectoryScores:
        """Return entropies of 1."""
        assert len(questions) == len(candidates)
        ones = [np.ones(candidate.token_ids.size, dtype=np.float32) for candidate in candidates]
        return TrajectoryScores([-values for values in ones], ones)

    def update(self, mini_batches: Sequence[MiniBatch], objective: ObjectiveSettings) -> dict[str, float]:
        """Learn nothing."""
        del mini_batches, objective
        return {}

    def _trajectory(self, question: Question) -> Trajectory:
        token_ids = self._rng.integers(3, SHAPE.vocabulary, self._num_tokens, dtype=np.int32)
        (verdict,) = CoinReward().grade([question], [Response("", token_ids, is_truncated=True)])
        ones = np.ones(token_ids.size, dtype=np.float32)
        return Trajectory(
            question_index=question.index,
            token_ids=token_ids,
            log_probs=-ones,
            reward=verdict.reward,
            text="",
            verdict=verdict.outcome,
            is_truncated=True,
            is_valid=verdict.is_valid,
            has_code=verdict.has_code,
            entropies=ones,
        )


@contextmanager
def sharing_nothing() -> Iterator[None]:
    """Compute every token of every row, as if no two rows had a prefix in common."""

    def build(rows: Sequence[Int32Array]) -> PrefixTree:
        # Tokens of different rows differ by a multiple of the vocabulary's size while the tree is built.
        apart = [row + np.int32(number * SHAPE.vocabulary) for number, row in enumerate(rows)]
        tree = build_prefix_tree(apart)
        return dataclasses.replace(tree, token_ids=tree.token_ids % SHAPE.vocabulary)

    with ExitStack() as stack:
        for module in (packing, kv_cache):
            stack.enter_context(mock.patch.object(module, "build_prefix_tree", build))
        stack.enter_context(mock.patch.object(backend, "split_by_prompt", packing.split_by_length))
        yield


class Embedded:
    """The embedded engine: on-policy steps, and ExGRPO's with a full replay buffer."""

    def __init__(self, dtype: str, num_questions: int, num_tokens: int, folder: Path) -> None:
        policy = open_policy(dtype)
        questions = make_questions(policy)
        self._configs = {
            name: make_config(num_questions, num_tokens, ratio) for name, ratio in (("on_policy", 0.0), ("exgrpo", 0.5))
        }
        self._states = {
            name: ExGRPOState.create(folder / name, questions, config) for name, config in self._configs.items()
        }
        for _ in range(FILLING_ROUNDS * NUM_QUESTIONS // num_questions):
            exgrpo_step(self._states["exgrpo"], InstantEngine(num_tokens), self._configs["exgrpo"])
        self._engine = EmbeddedEngine(
            policy, CoinReward(), self._configs["on_policy"], OptimSettings(learning_rate=LEARNING_RATE), seed=0
        )

    def do(self, work: str) -> dict[str, float]:
        """Do a step: `on_policy`, `unshared`, which is the same without sharing prefixes, or of `exgrpo`."""
        if work == "unshared":
            with sharing_nothing():
                return self.do("on_policy")
        timed = TimedEngine(self._engine)
        began_at = time.process_time()
        metrics = exgrpo_step(self._states[work], timed, self._configs[work]).metrics
        seconds = time.process_time() - began_at
        return {
            "step_s": seconds,
            **{f"{name}_s": value for name, value in timed.seconds.items()},
            "manage_share": (seconds - sum(timed.seconds.values())) / seconds,
            "tokens": metrics["tokens/generated"],
            "log_prob_gap": metrics["generator/log_prob_gap"],
            "num_candidates": metrics.get("replay/num_candidates", 0.0),
        }


class Trl:
    """TRL's GRPOTrainer as its users run it on a CPU; it reads lines itself, between its steps."""

    def __init__(self, dtype: str, num_questions: int, num_tokens: int, folder: Path) -> None:
        policy = open_policy("float32")
        questions = make_questions(policy)
        self._began_at = 0.0
        self._num_tokens = 0
        from bench.trl_trainer import make_trainer

        self._trainer = make_trainer(
            policy.model,
            policy.tokenizer,
            self._reward,
            {"prompt": [question.prompt_text for question in questions]},
            _stepper(self),
            output_dir=str(folder),
            per_device_train_batch_size=num_questions * ROLLOUTS // 4,
            gradient_accumulation_steps=4,
            num_generations=ROLLOUTS,
            max_completion_length=num_tokens,
            temperature=1.0,
            learning_rate=LEARNING_RATE,
            max_steps=10**6,
            beta=0.0,
            bf16=dtype == "bfloat16",
        )

    def train(self) -> None:
        """Take a step a line, until there is none."""
        self._trainer.train()

    def begin(self) -> bool:
        """Wait for a line; false if there is none."""
        has_work = bool(sys.stdin.readline())
        reset_peak_memory()
        self._num_tokens, self._began_at = 0, time.process_time()
        return has_work

    def end(self) -> None:
        """Print what the step took."""
        answer({"step_s": time.process_time() - self._began_at, "tokens": self._num_tokens})

    def _reward(self, completion_ids: list[list[int]], **_columns: object) -> list[float]:
        self._num_tokens += sum(map(len, completion_ids))
        return [float(zlib.crc32(np.array(ids, dtype=np.int32).data) % 10 < 4) for ids in completion_ids]


def _stepper(contender: Trl) -> Any:  # noqa: ANN401 - transformers is not imported by the others' processes
    from transformers import TrainerCallback

    class Stepper(TrainerCallback):
        def on_train_begin(self, _arguments: Any, _state: Any, control: Any, **_more: Any) -> None:  # noqa: ANN401
            control.should_training_stop = not contender.begin()

        def on_step_end(self, _arguments: Any, _state: Any, control: Any, **_more: Any) -> None:  # noqa: ANN401
            contender.end()
            control.should_training_stop = not contender.begin()

    return Stepper()


def answer(figures: dict[str, float]) -> None:
    """Print a piece of work's figures."""
    sys.stdout.write(f"{RESULT}{json.dumps(figures | {'peak_gib': peak_gib()})}\n")
    sys.stdout.flush()


def main(name: str, dtype: str, num_questions: int, num_tokens: int) -> None:
    """Do what the lines of the input say."""
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        if name != "trl":
            keep_freed_memory()
        if name.startswith("trl"):
            Trl(dtype, num_questions, num_tokens, Path(folder)).train()
            return
        contender = Embedded(dtype, num_questions, num_tokens, Path(folder))
        for line in sys.stdin:
            reset_peak_memory()
            answer(contender.do(line.strip()))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
