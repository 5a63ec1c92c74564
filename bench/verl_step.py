"""What the verl engine adds to stock verl's step, phase by phase, on the CPU.

Run `.venv-verl/bin/python -m bench.verl_step`. One trainer with one set of workers does blocks of three kinds of steps
in turn: stock verl's (`PPOTrainer._step_once` with its loss, replay buffer and advantages), this engine's on-policy
ones, and ExGRPO's. All have the same questions, K and mini-batches, an entropy bonus, so that every row is updated, and
look for finished rollouts as often. What stock verl does after a step (metrics, logging) is left out, as is recording.
The first step of a block is not counted: the loss is sent to the workers in it.
"""

import argparse
import dataclasses
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, cast

from bench.report import report
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.specs.train import TrainSpec, load_preset
from exgrpo.jobs.training.run_components import RunComponents
from exgrpo.jobs.training.verl_composition import open_components
from exgrpo_core import ExGRPOState, exgrpo_step
from exgrpo_core.config import ExGRPOConfig
from exgrpo_core.engine import RolloutRequest
from tests.verl_on_cpu import VARIABLES, on_cpu

if TYPE_CHECKING:
    from exgrpo.jobs.training.engines.verl_ray.engine import WorkbenchVerlEngine

BLOCK = 4
"""Steps of one kind before the next kind's."""
SHORT = {"batch_size": 4, "mini_batch_size": 4, "rollouts_per_question": 4}
"""Of the algorithm in short form, in which a block has two steps."""
STOCK, ON_POLICY, EXGRPO = "stock", "on_policy", "exgrpo"
PHASES = {
    "gen": "rollout", "old_log_prob": "rollout", "update_weights": "rollout", "prepare": "rollout",
    "adv": "update", "update_actor": "update",
}  # fmt: skip
"""verl's names of its phases, and in which of this engine's the same work lies."""
TARGETS = {"on_policy_over_stock": "<= 1.03", "exgrpo_without_scoring_over_stock": "<= 1.03"}

Seconds = dict[str, float]


class StockSteps:
    """Steps of stock verl on the engine's trainer, with the prompts that this project's agent loop takes."""

    def __init__(self, engine: "WorkbenchVerlEngine", components: RunComponents, config: ExGRPOConfig) -> None:
        from verl.utils.config import omega_conf_to_dataclass
        from verl.workers.utils.losses import ppo_loss

        self._engine = engine
        self._components = components
        self._config = config
        self._number = 0
        actor = omega_conf_to_dataclass(engine.trainer.config.actor_rollout_ref.actor)
        self._trainer = cast("Any", engine.trainer)  # verl's V1 trainer
        # Set by stock verl's loop, which is not run.
        self._trainer.curr_step_profile = False
        self._loss = partial(ppo_loss, config=actor)

    def enter(self) -> None:
        """Give the workers stock verl's loss, and the servers the current weights, as after any of its steps."""
        trainer = self._trainer
        trainer.actor_rollout_wg.set_loss_fn(self._loss)
        trainer.checkpoint_manager.update_weights(trainer.global_steps)

    def step(self) -> Seconds:
        """Do one step and return seconds of its phases."""
        import transfer_queue as tq

        trainer = self._trainer
        trainer.timing_raw = timing = {}
        began_at = time.perf_counter()
        self._submit()
        timing["prepare"] = time.perf_counter() - began_at
        batch = trainer._step_once({}, timing, self._config.batch_size)
        trainer.on_step_end()
        seconds = time.perf_counter() - began_at
        tq.kv_clear(keys=batch.keys, partition_id=batch.partition_id)
        trainer.global_steps += 1
        return _by_phase(timing, seconds)

    def _submit(self) -> None:
        from verl.utils.tensordict_utils import assign_non_tensor_data, get_tensordict

        self._number += 1
        first = self._number * self._config.batch_size
        questions = self._components.questions
        requests = [
            RolloutRequest(questions[(first + item) % len(questions)], self._config.rollouts_per_question)
            for item in range(self._config.batch_size)
        ]
        prompts = self._engine.describe_prompts(requests, f"stock/{self._number}")
        shared = self._engine.describe_sampling(self._config.temperature, self._config.max_response_tokens, True)
        batch = get_tensordict({name: [prompt[name] for prompt in prompts] for name in prompts[0]})
        for name, value in {"global_steps": self._trainer.global_steps, **shared}.items():
            assign_non_tensor_data(batch, name, value)
        self._trainer._submit_batch_to_rollout(batch)


class EngineSteps:
    """Steps of Algorithm 1 on the engine."""

    def __init__(
        self, engine: "WorkbenchVerlEngine", components: RunComponents, config: ExGRPOConfig, folder: Path
    ) -> None:
        self._engine = engine
        self._config = config
        self.state = ExGRPOState.create(folder, components.questions, config)

    def enter(self) -> None:
        """Let the next update send its loss to the workers."""
        self._engine.trainer._objective = None

    def step(self) -> Seconds:
        """Do one step and return seconds of its phases."""
        metrics = exgrpo_step(self.state, self._engine, self._config).metrics
        return {name: metrics[f"seconds/{name}"] for name in ("step", "rollout", "score", "update", "other")}


def _by_phase(timing: Mapping[str, float], step: float) -> Seconds:
    seconds: Seconds = defaultdict(float)
    for name, phase in PHASES.items():
        seconds[phase] += timing.get(name, 0.0)
    return {**seconds, "step": step, "score": 0.0, "other": step - sum(seconds.values())}


@contextmanager
def open_steps(spec: TrainSpec) -> Iterator[dict[str, Any]]:
    """Start verl and return what does each kind of steps."""
    config = dataclasses.replace(spec.algorithm, start_pass_rate=None)
    on_policy = dataclasses.replace(config, experience_ratio=0.0)
    with tempfile.TemporaryDirectory() as folder:
        run = RunDirectory.create(Path(folder) / "runs", spec)
        with open_components(spec, run) as components:
            engine: Any = components.engine
            kinds = {
                ON_POLICY: EngineSteps(engine, components, on_policy, Path(folder) / "on-policy"),
                EXGRPO: EngineSteps(engine, components, config, Path(folder) / "exgrpo"),
            }
            try:
                yield {STOCK: StockSteps(engine, components, config), **kinds}
            finally:
                for steps in kinds.values():
                    steps.state.replay_buffer.close()


def bench_spec(num_steps: int, changes: Mapping[str, Any]) -> TrainSpec:
    """Return the chains preset on verl with an entropy bonus as the paper's, and these changes of the algorithm."""
    spec = load_preset("chains-exgrpo")
    values = {
        "engine": "verl",
        "model": spec.model.model_copy(update={"device": "cpu"}),
        "verl": spec.verl.model_copy(update=on_cpu(1)),
        "algorithm": dataclasses.replace(spec.algorithm, entropy_coefficient=0.001, **changes),
        "num_steps": 10 * num_steps,
    }
    return spec.model_copy(update=values)


def time_blocks(kinds: Mapping[str, Any], num_blocks: int, steps_a_block: int) -> dict[str, list[Seconds]]:
    """Return seconds of all counted steps by kind; one block of each kind goes before, in which buffers fill."""
    times_of: dict[str, list[Seconds]] = {name: [] for name in kinds}
    for block in range(1 + num_blocks):
        for name, steps in kinds.items():
            steps.enter()
            times = [steps.step() for _ in range(steps_a_block)]
            if block > 0:
                times_of[name] += times[1:]
    return times_of


def main() -> None:
    """Time the steps and print the table and the last line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--blocks", type=int, default=8, help="timed blocks of each kind of steps")
    parser.add_argument("--short", action="store_true", help="1 timed block of small steps")
    arguments = parser.parse_args()
    os.environ.update(VARIABLES)
    num_blocks, steps_a_block, changes = (1, 2, SHORT) if arguments.short else (arguments.blocks, BLOCK, {})
    with open_steps(bench_spec(3 * steps_a_block * (1 + num_blocks), changes)) as kinds:
        times = time_blocks(kinds, num_blocks, steps_a_block)
    phases = ("step", "rollout", "score", "update", "other")
    middle = {name: {phase: median(step[phase] for step in item) for phase in phases} for name, item in times.items()}
    print(f"median of {len(times[STOCK])} steps of each kind, in ms")
    print(f"{'':<12}" + "".join(f"{phase:>10}" for phase in phases))
    for name, seconds in middle.items():
        print(f"{name:<12}" + "".join(f"{1e3 * seconds[phase]:10.1f}" for phase in phases))
    without = median(entry["step"] - entry["score"] for entry in times[EXGRPO])
    figures = {
        "num_steps": len(times[STOCK]),
        **{f"{name}_{phase}_ms": 1e3 * value[phase] for name, value in middle.items() for phase in phases},
        "on_policy_over_stock": middle[ON_POLICY]["step"] / middle[STOCK]["step"],
        "exgrpo_over_stock": middle[EXGRPO]["step"] / middle[STOCK]["step"],
        "exgrpo_without_scoring_over_stock": without / middle[STOCK]["step"],
    }
    report("verl_step", figures, TARGETS)


if __name__ == "__main__":
    main()
