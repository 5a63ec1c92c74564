"""Seconds a training step of the embedded engine and of TRL's GRPOTrainer, on the same work.

Run `python -m bench.embedded_vs_trl`. Same model, prompts, K, length limit, optimizer steps and thread count; a step is
one batch of rollouts and its optimizer steps. TRL runs as its users run it on a CPU (transformers generation, padded
batches). After each of its steps one on-policy and one ExGRPO step of the embedded engine are timed, so that all three
see the same machine.
"""

import argparse
import dataclasses
import gc
import tempfile
import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers import TrainerCallback

from bench.chains_run import ChainsRun, open_chains_run
from bench.report import report
from bench.trl_trainer import make_trainer
from exgrpo.jobs.tasks.grading.reward_function import Response, RewardFunction
from exgrpo_core.types import Question

LEARNING_RATE = 1e-4
NUM_WARM_STEPS = 5
TARGETS = {"speedup_on_policy": ">= 5.0"}


@dataclasses.dataclass(slots=True)
class Timings:
    """Seconds of each step, and response tokens a step of the embedded on-policy run and of TRL."""

    trl: list[float] = dataclasses.field(default_factory=list)
    on_policy: list[float] = dataclasses.field(default_factory=list)
    exgrpo: list[float] = dataclasses.field(default_factory=list)
    trl_tokens: list[float] = dataclasses.field(default_factory=list)
    on_policy_tokens: list[float] = dataclasses.field(default_factory=list)


class AlternatingSteps(TrainerCallback):
    """Times TRL's steps and does the embedded engine's in between."""

    def __init__(self, on_policy: ChainsRun, exgrpo: ChainsRun, timings: Timings, updates_per_step: int) -> None:
        self._on_policy = on_policy
        self._exgrpo = exgrpo
        self._timings = timings
        self._updates_per_step = updates_per_step
        self._began_at = 0.0

    def on_train_begin(self, *_arguments: Any, **_more: Any) -> None:  # noqa: ANN401 - the callback's signature
        """Start the clock."""
        self._began_at = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ANN401, ARG002
        """After a whole batch's optimizer steps, record TRL's time, then do and time the others' steps."""
        if state.global_step % self._updates_per_step != 0:
            return
        timings = self._timings
        timings.trl.append(time.perf_counter() - self._began_at)
        metrics = self._on_policy.step().metrics
        timings.on_policy.append(metrics["seconds/step"])
        timings.on_policy_tokens.append(metrics["tokens/generated"])
        timings.exgrpo.append(self._exgrpo.step().metrics["seconds/step"])
        self._began_at = time.perf_counter()


class TextReward:
    """The same grader as TRL calls it; counts the tokens that it gets."""

    __name__ = "chains"

    def __init__(self, reward: RewardFunction, questions: Sequence[Question], timings: Timings) -> None:
        self._reward = reward
        self._questions = questions
        self._timings = timings

    def __call__(
        self, completions: list[str], completion_ids: list[list[int]], number: list[int], **_columns: object
    ) -> list[float]:
        """Return one reward a completion; `number` is its question's."""
        self._timings.trl_tokens.append(float(sum(len(ids) for ids in completion_ids)))
        responses = [
            Response(text, np.asarray(ids, dtype=np.int32), is_truncated=False)
            for text, ids in zip(completions, completion_ids, strict=True)
        ]
        verdicts = self._reward.grade([self._questions[i] for i in number], responses)
        return [verdict.reward for verdict in verdicts]


def train_trl(run: ChainsRun, callback: TrainerCallback, timings: Timings, num_steps: int) -> None:
    """Let TRL train a copy of the run's model on the run's questions, batches, lengths and learning rate."""
    config, policy, questions = run.config, run.engine.policy, run.state.questions
    updates_per_step = config.batch_size // config.mini_batch_size
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = make_trainer(
            type(policy.model).from_pretrained(policy.source, dtype=torch.float32),
            policy.tokenizer,
            TextReward(run.components.reward, questions, timings),
            {"prompt": [question.prompt_text for question in questions], "number": [item.index for item in questions]},
            callback,
            output_dir=folder,
            per_device_train_batch_size=config.mini_batch_size * config.rollouts_per_question,
            gradient_accumulation_steps=1,
            steps_per_generation=updates_per_step,
            num_generations=config.rollouts_per_question,
            max_completion_length=config.max_response_tokens,
            temperature=config.temperature,
            learning_rate=LEARNING_RATE,
            max_steps=num_steps * updates_per_step,
            beta=config.kl_coefficient,
            epsilon=config.clip_epsilon,
        )
        gc.collect()
        gc.freeze()
        trainer.train()


def main() -> None:
    """Time all three and print the table and the last line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=30, help="timed steps of each")
    parser.add_argument("--short", action="store_true", help="2 timed steps")
    arguments = parser.parse_args()
    num_steps = 2 if arguments.short else arguments.steps
    timings = Timings()
    with open_chains_run("chains-on-policy") as on_policy, open_chains_run("chains-exgrpo") as exgrpo:
        updates_per_step = on_policy.config.batch_size // on_policy.config.mini_batch_size
        callback = AlternatingSteps(on_policy, exgrpo, timings, updates_per_step)
        train_trl(on_policy, callback, timings, NUM_WARM_STEPS + num_steps)
    medians = {
        field.name: float(np.median(getattr(timings, field.name)[NUM_WARM_STEPS:]))
        for field in dataclasses.fields(Timings)
    }
    print(f"median of {num_steps} steps, {torch.get_num_threads()} thread")
    for name in ("trl", "on_policy", "exgrpo"):
        print(f"  {name:<10} {1e3 * medians[name]:8.1f} ms a step")
    print(f"  tokens a step: TRL {medians['trl_tokens']:.0f}, embedded {medians['on_policy_tokens']:.0f}")
    figures = {
        "num_steps": num_steps,
        "trl_step_ms": 1e3 * medians["trl"],
        "on_policy_step_ms": 1e3 * medians["on_policy"],
        "exgrpo_step_ms": 1e3 * medians["exgrpo"],
        "trl_tokens_per_step": medians["trl_tokens"],
        "embedded_tokens_per_step": medians["on_policy_tokens"],
        "speedup_on_policy": medians["trl"] / medians["on_policy"],
        "speedup_exgrpo": medians["trl"] / medians["exgrpo"],
    }
    report("embedded_vs_trl", figures, TARGETS)


if __name__ == "__main__":
    main()
