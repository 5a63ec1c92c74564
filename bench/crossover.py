"""Runs of the study `crossover` in memory, one after another, each ended at the same number of fresh rollouts.

Run `python -m bench.crossover --rates e0.4 e3 --seeds 0 1 2`. Each run is a line of `docs/studies/crossover.jsonl`;
the same command continues with the runs that are missing. `python -m bench.crossover_report` makes the page.
"""

import argparse
import itertools
import json
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from exgrpo_core import ExGRPOState, exgrpo_step
from jobs.specs.train import TrainSpec
from jobs.studies.definition import Scale, Study, load_study
from jobs.studies.matrix import RunKey, spec_of
from jobs.training.composition import open_components
from jobs.training.run_components import EVALUATION_SEED, RunComponents

RESULT_FILE = Path(__file__).parents[1] / "docs" / "studies" / "crossover.jsonl"
FULL_ROLLOUTS = 10_000
START = "start"
"""The method name of a line that scores a warm model before any training."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What one run may cost."""

    num_rollouts: int
    """Fresh rollouts after which training ends, checked after each step."""
    num_held_out: int
    num_samples: int
    """Answers to each held-out question: the largest k of Pass@k."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run showed."""

    method: str
    rate: str
    rest: str
    """Values of the other axes, as in the cell's name."""
    seed: int
    warm_seed: int
    num_correct: list[int]
    """Right answers to each held-out question, of `num_samples`."""
    num_samples: int
    steps: int = 0
    fresh_rollouts: int = 0
    tokens: int = 0
    """Response tokens generated in training."""
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    num_retired: int = 0
    num_replayed: int = 0
    gradient_weight: float | None = None
    """Mean gradient weight of replayed tokens over the steps that replayed."""
    fresh_pass_rates: tuple[float, ...] = ()
    """Pass@1 of the fresh questions of each step."""


def main() -> None:
    """Run what is missing, rate by rate and method by method within a seed, and append it to the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--methods", nargs="+", default=["on-policy", "retire", "exgrpo", "redraw"])
    parser.add_argument("--rates", nargs="+", default=["e0.4", "e1.5", "e3", "e5"])
    parser.add_argument("--rest", default="k8-n64", help="values of the other axes, as in a cell's name")
    parser.add_argument("--seeds", type=int, nargs="+", default=range(24), help="of warm model 0 are 0, 3, 6 and so on")
    parser.add_argument("--rollouts", type=int, default=FULL_ROLLOUTS)
    parser.add_argument("--held-out", type=int, default=96)
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, help="another one than the study's, to choose it on other seeds")
    parser.add_argument("--until", help="local time, HH:MM, after which no run is started")
    parser.add_argument("--out", type=Path, default=RESULT_FILE)
    options = parser.parse_args()
    torch.set_num_threads(1)
    study, budget = load_study("crossover"), Budget(options.rollouts, options.held_out, options.samples)
    done = {(line["method"], line["rate"], line["rest"], line["seed"]) for line in read_lines(options.out)}
    for seed, rate, method in itertools.product(options.seeds, options.rates, [START, *options.methods]):
        if options.until and time.strftime("%H:%M") >= options.until:
            break
        number = seed % study.num_warm_models if method == START else seed
        if (method, rate, options.rest, number) not in done:
            outcome = run_cell(study, method, rate, options.rest, number, budget, options.learning_rate)
            done.add((method, rate, options.rest, number))
            append(options.out, outcome)
            share = sum(outcome.num_correct) / (len(outcome.num_correct) * outcome.num_samples)
            print(f"{rate} {method} seed {number}: Pass@1 {share:.3f}, {outcome.cpu_seconds:.0f} CPU s", flush=True)


def run_cell(
    study: Study, method: str, rate: str, rest: str, seed: int, budget: Budget, learning_rate: float | None = None
) -> Outcome:
    """Return the outcome of one run; of `START` only the score of the model that it would start from."""
    cell = f"{'on-policy' if method == START else method}-{rate}-{rest}"
    spec = spec_of_run(study, cell, seed, budget, learning_rate)
    began_at, cpu_began_at = time.perf_counter(), time.process_time()
    with tempfile.TemporaryDirectory() as directory, open_components(spec) as components:
        outcome = Outcome(method, rate, rest, seed, spec.model.warm_seed, [], budget.num_samples)
        if method != START:
            outcome = train(outcome, spec, components, Path(directory), budget.num_rollouts)
        outcome = replace(
            outcome,
            wall_seconds=round(time.perf_counter() - began_at, 2),
            cpu_seconds=round(time.process_time() - cpu_began_at, 2),
        )
        return replace(outcome, num_correct=score(spec, components, budget.num_samples))


def spec_of_run(study: Study, cell: str, seed: int, budget: Budget, learning_rate: float | None) -> TrainSpec:
    """Return the study's specification with the budget's held-out questions, and another learning rate if given."""
    spec = spec_of(study, RunKey(study.name, Scale.CHAINS, cell, seed))
    optim = spec.optim if learning_rate is None else spec.optim.model_copy(update={"learning_rate": learning_rate})
    data = spec.data.model_copy(update={"num_held_out": budget.num_held_out})
    return spec.model_copy(update={"data": data, "optim": optim})


def train(outcome: Outcome, spec: TrainSpec, components: RunComponents, directory: Path, num_rollouts: int) -> Outcome:
    """Train until the fresh rollouts are spent."""
    state = ExGRPOState.create(directory, components.questions, spec.algorithm)
    metrics: list[dict[str, float]] = []
    while state.num_fresh_rollouts < num_rollouts:
        metrics.append(exgrpo_step(state, components.engine, spec.algorithm).metrics)
    state.replay_buffer.close()
    weights = [line["replay/gradient_weight_mean"] for line in metrics if "replay/gradient_weight_mean" in line]
    return replace(
        outcome,
        steps=state.step,
        fresh_rollouts=state.num_fresh_rollouts,
        tokens=int(metrics[-1]["tokens/generated_total"]),
        num_retired=int(metrics[-1]["buffer/num_retired"]),
        num_replayed=int(sum(line["replay/num_replayed"] for line in metrics)),
        gradient_weight=round(float(np.mean(weights)), 5) if weights else None,
        fresh_pass_rates=tuple(round(line.get("reward/pass_at_1_fresh", 0.0), 3) for line in metrics),
    )


def score(spec: TrainSpec, components: RunComponents, num_samples: int) -> list[int]:
    """Return right answers to each held-out question."""
    responses = components.engine.generate_for_evaluation(
        components.held_out,
        num_samples,
        spec.validation.temperature,
        spec.algorithm.max_response_tokens,
        EVALUATION_SEED,
    )
    verdicts = components.reward.grade(
        [question for question in components.held_out for _ in range(num_samples)],
        [response for sampled in responses for response in sampled],
    )
    is_correct = np.array([verdict.reward >= 1.0 for verdict in verdicts]).reshape(-1, num_samples)
    counts: list[int] = is_correct.sum(axis=1).tolist()
    return counts


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the runs in a file, none if there is no file."""
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def append(path: Path, outcome: Outcome) -> None:
    """Add one run to the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(outcome)) + "\n")


if __name__ == "__main__":
    main()
