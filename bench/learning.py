"""Learning curves of ExGRPO and of on-policy training with and without CLIP on `chains`, over seeds.

Run `python -m bench.learning --seeds 8`. All methods see the same questions; a seed sets question order, sampling and
draws, and seeds use three warm models in turn, which the intervals over seeds cover. Curves are Avg@8 on held-out
questions, by step and by fresh rollouts.
"""

import argparse
import dataclasses
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.report import report
from db.statistics.differences import area_under_curve
from db.statistics.intervals import mean_interval
from jobs.specs.train import TrainSpec, load_preset, merge_settings, parse_spec

METHODS = {
    "ExGRPO": "chains-exgrpo",
    "on-policy, CLIP": "chains-on-policy",
    "on-policy, no CLIP": "chains-on-policy-no-clip",
    "on-policy + retire": "chains-on-policy-retire",
    "ExGRPO, redrawn": "chains-redraw",
}
OTHER_METHODS = {
    "ExGRPO, released selection": "chains-released-selection",
    "RePO": "chains-repo",
    "TRL replay": "chains-trl-replay",
    "Trinity": "chains-trinity",
    "prioritized": "chains-prioritized",
    "prioritized, rank": "chains-prioritized-rank",
    "DAPO sampling": "chains-dapo",
    "CISPO": "chains-cispo",
    "GSPO": "chains-gspo",
    "supervised": "chains-supervised",
}
"""Methods that run only when they are named."""
NUM_WARM_MODELS = 3
EVALUATION_INTERVAL = 15
LEARNING_RATES = (1e-4, 2e-4)
RESULT_FILE = Path(__file__).parent / "results" / "learning.json"


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """One run of the matrix."""

    method: str
    learning_rate: float
    seed: int
    num_steps: int


@dataclasses.dataclass(slots=True)
class Curve:
    """What one run showed: Avg@8 by step and fresh rollouts so far, and scores of correct rollouts by validity."""

    steps: list[int]
    fresh_rollouts: list[int]
    avg_at_8: list[float]
    nll_valid: list[float]
    nll_lucky: list[float]
    entropy_valid: list[float]
    entropy_lucky: list[float]
    seconds: float


def spec_of(job: Job) -> TrainSpec:
    """Return the specification of one cell of the matrix."""
    base = load_preset((METHODS | OTHER_METHODS)[job.method]).model_dump(mode="json")
    changes = {
        "optim": {"learning_rate": job.learning_rate},
        "algorithm": {"seed": job.seed},
        "model": {"warm_seed": job.seed % NUM_WARM_MODELS},
        "seed": job.seed,
        "num_steps": job.num_steps,
    }
    return parse_spec(merge_settings(base, changes), "bench.learning")


def train(job: Job, engine: str = "embedded") -> Curve:
    """Train one run in memory and return its curve."""
    import torch

    from exgrpo_core import ExGRPOState, exgrpo_step

    if engine == "verl":
        from bench.verl_parts import open_verl_parts as open_components
    else:
        from jobs.training.composition import open_components

    torch.set_num_threads(1)
    spec, began_at = spec_of(job), time.perf_counter()
    curve = Curve([], [], [], [], [], [], [], 0.0)
    with tempfile.TemporaryDirectory() as directory, open_components(spec) as components:
        state = ExGRPOState.create(Path(directory), components.questions, spec.algorithm)
        score(curve, components, spec, 0, 0)
        for _ in range(spec.num_steps):
            step_report = exgrpo_step(state, components.engine, spec.algorithm)
            for group in step_report.groups:
                collect_scores(curve, group.trajectories)
            if state.step % EVALUATION_INTERVAL == 0 or state.step == spec.num_steps:
                score(curve, components, spec, state.step, state.num_fresh_rollouts)
        state.replay_buffer.close()
    curve.seconds = time.perf_counter() - began_at
    return curve


def score(curve: Curve, components: Any, spec: TrainSpec, step: int, num_fresh: int) -> None:  # noqa: ANN401 (needs torch to import)
    """Add Avg@8 on the held-out questions to the curve."""
    responses = components.engine.generate_for_evaluation(
        components.held_out, 8, spec.validation.temperature, spec.algorithm.max_response_tokens, 7919
    )
    verdicts = components.reward.grade(
        [question for question in components.held_out for _ in range(8)],
        [response for of_question in responses for response in of_question],
    )
    curve.steps.append(step)
    curve.fresh_rollouts.append(num_fresh)
    curve.avg_at_8.append(float(np.mean([verdict.reward >= 1.0 for verdict in verdicts])))


def collect_scores(curve: Curve, trajectories: Sequence[Any]) -> None:
    """Add mean NLL and entropy of correct rollouts, valid and lucky ones apart."""
    for trajectory in trajectories:
        if trajectory.reward >= 1.0 and trajectory.entropies is not None:
            is_valid = bool(trajectory.is_valid)
            (curve.nll_valid if is_valid else curve.nll_lucky).append(float(-trajectory.log_probs.mean()))
            (curve.entropy_valid if is_valid else curve.entropy_lucky).append(float(trajectory.entropies.mean()))


def run_matrix(jobs: list[Job], num_workers: int) -> Iterator[tuple[Job, Curve]]:
    """Train all jobs in worker processes of one torch thread each, and yield curves as they end."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(num_workers, maxtasksperchild=1) as pool:
        yield from pool.imap_unordered(_train_job, jobs)


def _train_job(job: Job) -> tuple[Job, Curve]:
    return job, train(job)


def main() -> None:
    """Run the matrix, print the table and write `bench/results/learning.json`."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--others", nargs="*", choices=OTHER_METHODS, default=[], help="further methods, by name")
    parser.add_argument("--out", type=Path, default=RESULT_FILE)
    options = parser.parse_args()
    jobs = [
        Job(method, rate, seed, options.steps)
        for seed in range(options.seeds)
        for rate in LEARNING_RATES
        for method in (*METHODS, *options.others)
    ]
    print(f"{len(jobs)} runs of {options.steps} steps, {options.workers} workers, one torch thread each", flush=True)
    results: list[tuple[Job, Curve]] = []
    for job, curve in run_matrix(jobs, options.workers):
        results.append((job, curve))
        print(
            f"  {job.method:<19} lr {job.learning_rate:.0e} seed {job.seed}: Avg@8 {curve.avg_at_8[0]:.3f} -> "
            f"{curve.avg_at_8[-1]:.3f} after {curve.fresh_rollouts[-1]} fresh rollouts, {curve.seconds:.0f} s",
            flush=True,
        )
    figures = summarize(results)
    write(options.out, results, figures)
    report("learning", figures, {"auc_nll": ">= 0.9"})


def summarize(results: Sequence[tuple[Job, Curve]]) -> dict[str, float]:
    """Print the table and return its figures."""
    figures: dict[str, float] = {}
    print(f"\n{'method':<19} {'lr':>6} {'Avg@8 end':>18} {'worst':>6} {'mean over curve':>16} {'fresh rollouts':>14}")
    for rate in LEARNING_RATES:
        for method in methods_of(results):
            curves = [curve for job, curve in results if (job.method, job.learning_rate) == (method, rate)]
            ends = [curve.avg_at_8[-1] for curve in curves]
            of_ends = mean_interval(ends)
            along = float(np.mean([np.mean(curve.avg_at_8) for curve in curves]))
            fresh = float(np.mean([curve.fresh_rollouts[-1] for curve in curves]))
            print(
                f"{method:<19} {rate:>6.0e} {of_ends.mean:>9.3f} ± {of_ends.half:.3f} {of_ends.worst:>8.3f} "
                f"{along:>16.3f} {fresh:>14.0f}"
            )
            name = f"{method}, lr {rate:.0e}"
            figures[f"{name}: Avg@8 end"] = of_ends.mean
            figures[f"{name}: half interval"] = of_ends.half
            figures[f"{name}: worst seed"] = of_ends.worst
            figures[f"{name}: mean over curve"] = along
            figures[f"{name}: fresh rollouts"] = fresh
        figures |= paired_differences(results, rate)
    pooled = [curve for _, curve in results]
    for name in ("nll", "entropy"):
        per_run = [area_under_curve(getattr(c, f"{name}_lucky"), getattr(c, f"{name}_valid")) for c in pooled]
        figures[f"auc_{name}"] = float(np.median(per_run))
        figures[f"auc_{name}_worst_run"] = min(per_run)
    print(
        f"\nAUC for oracle validity among correct rollouts, median over runs: "
        f"NLL {figures['auc_nll']:.3f}, entropy {figures['auc_entropy']:.3f}"
    )
    return figures


def methods_of(results: Sequence[tuple[Job, Curve]]) -> list[str]:
    """Return the methods that ran, ExGRPO first."""
    return [method for method in (*METHODS, *OTHER_METHODS) if any(job.method == method for job, _ in results)]


def paired_differences(results: Sequence[tuple[Job, Curve]], rate: float) -> dict[str, float]:
    """Return ExGRPO minus each other method at the end, paired by seed, with its 95% interval."""
    ends = {(job.method, job.seed): curve.avg_at_8[-1] for job, curve in results if job.learning_rate == rate}
    figures: dict[str, float] = {}
    for method in methods_of(results)[1:]:
        seeds = sorted({seed for name, seed in ends if name == method})
        gain = mean_interval([ends["ExGRPO", seed] - ends[method, seed] for seed in seeds])
        print(f"  ExGRPO - {method}, lr {rate:.0e}, paired over {len(seeds)} seeds: {gain.mean:+.3f} ± {gain.half:.3f}")
        figures[f"ExGRPO - {method}, lr {rate:.0e}"] = gain.mean
        figures[f"ExGRPO - {method}, lr {rate:.0e}: half interval"] = gain.half
    return figures


def write(path: Path, results: Sequence[tuple[Job, Curve]], figures: dict[str, float]) -> None:
    """Write every curve and the figures; scores of single rollouts stay out."""
    kept = ("steps", "fresh_rollouts", "avg_at_8", "seconds")
    runs = [dataclasses.asdict(job) | {name: getattr(curve, name) for name in kept} for job, curve in results]
    runs.sort(key=lambda run: (run["learning_rate"], run["method"], run["seed"]))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"figures": figures, "runs": runs}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
