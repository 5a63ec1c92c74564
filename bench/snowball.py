"""Runs of the snowball presets in memory: how code and invalid chains spread in rollouts, buffer and replays.

Run `python -m bench.snowball --seeds 8`. Each run is a line of `docs/studies/snowball.jsonl`; the same command
makes the runs that are missing. `python -m bench.snowball_report` makes the tables of `docs/snowball.md`.
"""

import argparse
import json
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch

from bench.crossover import read_lines, score
from bench.learning import NUM_WARM_MODELS
from db.rows.chains_of_thought import EASY_ABOVE, HARD_UP_TO, Difficulty
from exgrpo_core import ExGRPOState, exgrpo_step
from exgrpo_core.step_report import BufferEventKind, StepReport
from exgrpo_core.types import RolloutGroup, Trajectory
from jobs.specs.train import TrainSpec, load_preset, merge_settings, parse_spec
from jobs.training.composition import open_components

RESULT_FILE = Path(__file__).parents[1] / "docs" / "studies" / "snowball.jsonl"
METHODS = {
    "highest entropy": "chains-snowball",
    "lowest entropy": "chains-snowball-lowest-entropy",
    "on-policy": "chains-snowball-on-policy",
}
NUM_STEPS = 100
NUM_SAMPLES = 8
PARTS = ("rollouts", "successes", "buffer", "replays")

Tally = tuple[int, int, int]
"""Trajectories, those with code, those whose chain of thought is invalid."""


@dataclass(slots=True)
class Spread:
    """What one run showed, step by step."""

    method: str
    seed: int
    warm_seed: int
    tallies: dict[str, list[Tally]] = field(default_factory=lambda: {part: [] for part in PARTS})
    """Of each of `PARTS`, one a step; the buffer's after it."""
    chains: dict[str, tuple[int, float, int]] = field(default_factory=dict)
    """Successes of partly solved questions by difficulty and code: number, sum of mean entropies, valid ones."""
    num_correct: list[int] = field(default_factory=list)
    """Right answers to each held-out question at the end, of eight."""
    cpu_seconds: float = 0.0


def main() -> None:
    """Run what is missing, method by method within a seed, and append it to the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=8, help="the run of seed s starts from warm model s modulo 3")
    parser.add_argument("--until", help="local time, HH:MM, after which no run is started")
    parser.add_argument("--out", type=Path, default=RESULT_FILE)
    options = parser.parse_args()
    torch.set_num_threads(1)
    done = {(line["method"], line["seed"]) for line in read_lines(options.out)}
    for seed in range(options.seeds):
        for method in METHODS:
            if options.until and time.strftime("%H:%M") >= options.until:
                return
            if (method, seed) not in done:
                spread = run(method, spec_of(method, seed))
                with options.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(spread)) + "\n")
                print(f"{method} seed {seed}: {spread.cpu_seconds:.0f} CPU s", flush=True)


def spec_of(method: str, seed: int) -> TrainSpec:
    """Return the specification of one run."""
    base = load_preset(METHODS[method]).model_dump(mode="json")
    changes = {
        "seed": seed,
        "algorithm": {"seed": seed},
        "model": {"warm_seed": seed % NUM_WARM_MODELS},
        "num_steps": NUM_STEPS,
    }
    return parse_spec(merge_settings(base, changes), "bench.snowball")


def run(method: str, spec: TrainSpec) -> Spread:
    """Train one run in memory and return how code and invalid chains spread in it."""
    spread, began_at = Spread(method, spec.seed, spec.model.warm_seed), time.process_time()
    known: dict[int, Trajectory] = {}
    stored: dict[int, list[int]] = {}
    with tempfile.TemporaryDirectory() as directory, open_components(spec) as components:
        state = ExGRPOState.create(Path(directory), components.questions, spec.algorithm)
        for _ in range(spec.num_steps):
            add_step(spread, exgrpo_step(state, components.engine, spec.algorithm), known, stored)
        state.replay_buffer.close()
        spread.num_correct = score(spec, components, NUM_SAMPLES)
    spread.cpu_seconds = round(time.process_time() - began_at, 2)
    return spread


def add_step(spread: Spread, report: StepReport, known: dict[int, Trajectory], stored: dict[int, list[int]]) -> None:
    """Add a step; `known` holds all trajectories by id, `stored` those in the buffer by question."""
    fresh = [trajectory for group in report.groups for trajectory in group.trajectories]
    known |= {trajectory.trajectory_id: trajectory for trajectory in fresh}
    for event in report.buffer_events:
        if event.kind is BufferEventKind.INSERTED and event.trajectory_id is not None:
            stored.setdefault(event.question_index, []).append(event.trajectory_id)
        elif event.kind is BufferEventKind.RETIRED:
            stored.pop(event.question_index, None)
    replays = [replay.experience.trajectory_id for group in report.groups for replay in group.replays]
    buffered = [trajectory_id for of_question in stored.values() for trajectory_id in of_question]
    parts: Mapping[str, Iterable[Trajectory]] = {
        "rollouts": fresh,
        "successes": [trajectory for trajectory in fresh if trajectory.reward >= 1.0],
        "buffer": [known[trajectory_id] for trajectory_id in buffered],
        "replays": [known[trajectory_id] for trajectory_id in replays],
    }
    for part, trajectories in parts.items():
        spread.tallies[part].append(tally(trajectories))
    for group in report.groups:
        _add_chains(spread, group)


def tally(trajectories: Iterable[Trajectory]) -> Tally:
    """Return how many there are, with code and with an invalid chain of thought, by the task's oracle."""
    counts: Counter[str] = Counter()
    for trajectory in trajectories:
        counts.update(all=1, code=bool(trajectory.has_code), invalid=trajectory.is_valid is False)
    return counts["all"], counts["code"], counts["invalid"]


def _add_chains(spread: Spread, group: RolloutGroup) -> None:
    rate = float((group.rewards >= 1.0).mean())
    if not 0.0 < rate < 1.0:
        return
    difficulty = Difficulty.EASY if rate > EASY_ABOVE else Difficulty.HARD if rate <= HARD_UP_TO else Difficulty.MEDIUM
    for trajectory in group.trajectories:
        if trajectory.reward >= 1.0 and trajectory.entropies is not None:
            key = f"{difficulty.value}, {'code' if trajectory.has_code else 'no code'}"
            number, entropy, num_valid = spread.chains.get(key, (0, 0.0, 0))
            entropy += float(trajectory.entropies.mean())
            spread.chains[key] = (number + 1, entropy, num_valid + bool(trajectory.is_valid))


if __name__ == "__main__":
    main()
