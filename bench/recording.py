"""What recording costs a run, how small its files are, and how fast the database ingests them.

- Recording at the paper's size (128 questions x 8 rollouts of 2,000 tokens on average, up to 8,192): how long until a
  step is on disk, as if the training loop waited for that.
- Recording of the embedded engine's steps on chains, a second's together, after another step of it: how long until
  they are on disk, as if the loop waited, by the number of them: at the engine's pace, and if steps took 100 ms.
- Size: a step's files with the default retention next to JSON lines of the same step: all that is known of every
  trajectory, and only what the retention keeps.
- Replay: processor time of executing a step of the paper's size again, by stage; a record of all that updates saw.
- Ingest: from files to tables, reading and parsing included: steps of 48 metrics without trajectories, and
  trajectories of 150 words on average with their full-text index. Another process asks for the list of runs and for a
  chart all the while. Every measurement starts with an empty database.

Run `python -m bench.recording`; `--short` does fewer steps; `--database-url` takes another database than SQLite, which
has to be empty and is left empty.
"""

import argparse
import dataclasses
import itertools
import json
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from bench.chains_run import open_chains_run
from bench.made_up_steps import StepMaker, StepSize
from bench.report import report
from exgrpo.db.connections.opening import open_database, reset
from exgrpo.db.queries.metrics import metric_series
from exgrpo.db.queries.run_filter import RunFilter
from exgrpo.db.queries.runs import list_runs
from exgrpo.jobs.actions.replay.advantages import advantage_facts
from exgrpo.jobs.actions.replay.loss import loss_facts
from exgrpo.jobs.actions.replay.rewards import reward_facts
from exgrpo.jobs.actions.replay.selection import selection_facts
from exgrpo.jobs.actions.replay.steps import open_step
from exgrpo.jobs.execution.supervisor.indexing import ingest_all
from exgrpo.jobs.runs.attempts import write_outcome
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.specs.train import RecordingSpec, TrainSpec
from exgrpo_core.methods.loading import build_objective
from exgrpo_core.policy_optimization.objective import MiniBatchSizes, exgrpo_loss, pack_inputs
from exgrpo_core.recording.file_recorder import FileRecorder
from exgrpo_core.recording.run_status import RunStatus
from exgrpo_core.step_report import StepReport
from exgrpo_core.types import SeenMiniBatch

PAPER_STEP = StepSize(num_questions=128, mean_tokens=2000)
SMALL_STEP = StepSize(num_questions=16, mean_tokens=2000)
"""Of the paper's, an eighth, in short form."""
INGESTED_STEP = StepSize(num_questions=128, mean_tokens=195)
NO_ROLLOUTS = StepSize(num_questions=0, mean_tokens=0)
PAPER_STEP_SECONDS = 150.0
PRESET = "chains-exgrpo"
NUM_WARM_STEPS = 10
EMBEDDED_STEP_MS = 100.0
STEPS_A_SECOND = 4
"""About the embedded engine's pace on chains."""
READERS_PAUSE_SECONDS = 0.05
TARGETS = {"paper/share_of_step": "<= 0.002", "embedded/share_of_100_ms": "<= 0.02", "size/json_lines_ratio": ">= 7"}
RATES = {"ingest/metric_points_per_s": 100_000, "ingest/trajectories_per_s": 5_000}
"""Into SQLite; half of that into PostgreSQL."""
STAGES = {f"replay/{stage}_s": "<= 2" for stage in ("selection", "reward", "advantages", "loss")}
READERS = {"readers/runs_list_ms": "<= 50", "readers/chart_ms": "<= 50"}


def new_run(runs_root: Path) -> tuple[RunDirectory, FileRecorder]:
    """Return a new run with the recorder of its first attempt."""
    run = RunDirectory.create(runs_root, TrainSpec())
    run.attempt_path(1).mkdir(parents=True)
    return run, FileRecorder(run, 1, RecordingSpec())


def record_all(recorder: FileRecorder, reports: Iterable[StepReport]) -> list[float]:
    """Record steps and return the milliseconds until each was on disk."""
    milliseconds = []
    for step_report in reports:
        began_at = time.perf_counter()
        recorder.step(step_report)
        recorder.settle()
        milliseconds.append(1e3 * (time.perf_counter() - began_at))
    return milliseconds


def measure_paper(runs_root: Path, size: StepSize, num_steps: int) -> dict[str, float]:
    """Return how long a step of the paper's size takes to be on disk, and the size of its files."""
    run, recorder = new_run(runs_root)
    reports = list(StepMaker(size).reports(num_steps))
    milliseconds = record_all(recorder, reports)
    recorder.close()
    num_trajectories = sum(len(group.trajectories) for item in reports for group in item.groups)
    num_bytes = sum(path.stat().st_size for path in run.attempt_path(1).rglob("*") if path.is_file())
    everything = sum(json_lines_bytes(entry, is_whole=True) for entry in reports)
    return {
        "paper/step_ms": median(milliseconds),
        "paper/step_ms_max": max(milliseconds),
        "paper/share_of_step": median(milliseconds) / 1e3 / PAPER_STEP_SECONDS,
        "size/kb_per_trajectory": num_bytes / num_trajectories / 1e3,
        "size/json_lines_kb_per_trajectory": everything / num_trajectories / 1e3,
        "size/json_lines_ratio": everything / num_bytes,
        "size/json_lines_of_the_kept_ratio": sum(json_lines_bytes(value, is_whole=False) for value in reports)
        / num_bytes,
    }


def measure_replay(runs_root: Path, size: StepSize) -> dict[str, float]:
    """Return the processor seconds of executing a step of the paper's size again, by stage; torch is loaded before."""
    spec = TrainSpec(recording=RecordingSpec(token_data="all"))
    run = RunDirectory.create(runs_root, spec)
    run.attempt_path(1).mkdir(parents=True)
    recorder = FileRecorder(run, 1, spec.recording)
    [made] = StepMaker(size).reports(1)
    items = [item for group in made.groups for item in group.trajectories]
    nothing, objective = torch.empty(0), build_objective(spec.algorithm, is_replay_open=True)
    sums = exgrpo_loss(pack_inputs([], nothing, nothing, nothing), objective, MiniBatchSizes(1, 1)).sums
    seen = {(item.trajectory_id, False): {"update_log_probs": item.log_probs} for item in items}
    made.mini_batches = [SeenMiniBatch({name: float(value) for name, value in sums.items()}, seen)]
    record_all(recorder, [made])
    recorder.close()
    write_outcome(run.attempt_path(1), RunStatus.FINISHED, "")
    ingest_all(runs_root, None)
    with closing(open_database(None, runs_root)) as database:
        recorded = open_step(database, runs_root, run.run_id, 1)
        stages: dict[str, Callable[[], object]] = {
            "selection": lambda: selection_facts(recorded, spec.algorithm),
            "reward": lambda: reward_facts(recorded, spec),
            "advantages": lambda: advantage_facts(recorded, spec.algorithm),
            "loss": lambda: list(loss_facts(recorded, spec.algorithm)),
        }
        figures = {}
        for name, execute in stages.items():
            began_at = time.process_time()
            execute()
            figures[f"replay/{name}_s"] = time.process_time() - began_at
    return figures


def json_lines_bytes(step_report: StepReport, *, is_whole: bool) -> int:
    """Return the size of a step as JSON lines: with the per-token values of all trajectories, or of correct ones."""
    num_bytes = 0
    for group in step_report.groups:
        for trajectory in group.trajectories:
            line: dict[str, Any] = {
                "step": step_report.step,
                "trajectory_id": trajectory.trajectory_id,
                "question_id": group.question.question_id,
                "reward": trajectory.reward,
                "verdict": trajectory.verdict,
                "text": trajectory.text,
            }
            if is_whole or trajectory.reward >= 1.0:
                line |= {"token_ids": trajectory.token_ids.tolist(), "log_probs": _decimals(trajectory.log_probs)}
                line["entropies"] = _decimals(trajectory.entropies)
            num_bytes += len(json.dumps(line)) + 1
    return num_bytes


def _decimals(values: np.ndarray | None) -> list[float]:
    """Return float32 numbers with the digits that they need, as a careful program would write them."""
    return [] if values is None else [float(str(value)) for value in values]


def measure_embedded(runs_root: Path, num_rounds: int) -> dict[str, float]:
    """Return how long steps of the embedded engine on chains take to be on disk, a step of those of a second."""
    _, recorder = new_run(runs_root)
    numbers = itertools.count(1)
    milliseconds: dict[int, list[float]] = {STEPS_A_SECOND: [], round(1e3 / EMBEDDED_STEP_MS): []}
    steps = []

    def record(reports: Iterable[StepReport]) -> float:
        again = [dataclasses.replace(entry, step=next(numbers)) for entry in reports]
        began_at = time.perf_counter()
        for item in again:
            recorder.step(item)
        recorder.settle()
        return 1e3 * (time.perf_counter() - began_at) / len(again)

    with open_chains_run(PRESET) as run:
        made = [run.step() for _ in range(NUM_WARM_STEPS)]
        for _ in range(num_rounds):
            for num_together, times in milliseconds.items():
                # So that the next steps wait to be written together, as they do in the middle of a run.
                record(made[-1:])
                made.append(run.step())
                steps.append(1e3 * made[-1].metrics["seconds/step"])
                times.append(record(made[-num_together:]))
    recorder.close()
    at_own_pace, at_100_ms = milliseconds.values()
    return {
        "embedded/recorded_ms": median(at_own_pace),
        "embedded/recorded_ms_max": max(at_own_pace),
        "embedded/step_ms": median(steps),
        "embedded/share_of_step": median(at_own_pace) / median(steps),
        "embedded/share_of_100_ms": median(at_100_ms) / EMBEDDED_STEP_MS,
    }


def measure_ingest(database_url: str | None, size: StepSize, num_steps: int) -> tuple[float, dict[str, float]]:
    """Return the seconds of ingesting a run of these steps, and the times of readers during that."""
    with tempfile.TemporaryDirectory() as name:
        runs_root = Path(name)
        run, recorder = new_run(runs_root)
        record_all(recorder, StepMaker(size).reports(num_steps))
        recorder.close()
        write_outcome(run.attempt_path(1), RunStatus.FINISHED, "")
        open_database(database_url, runs_root).close()
        near_end, far_end = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        reader = context.Process(target=read_until_stopped, args=(far_end, database_url, runs_root, run.run_id))
        reader.start()
        far_end.close()
        near_end.recv()
        began_at = time.perf_counter()
        ingest_all(runs_root, database_url)
        seconds = time.perf_counter() - began_at
        near_end.send("stop")
        figures = near_end.recv()
        reader.join()
        with closing(open_database(database_url, runs_root)) as database:
            reset(database)
    return seconds, figures


def read_until_stopped(connection: Connection, database_url: str | None, runs_root: Path, run_id: str) -> None:
    """Ask for the list of runs and for a chart repeatedly until a message comes; then send the times.

    Only what is asked once the run is listed counts: before that there is nothing to read.
    """
    times: dict[str, list[float]] = {"runs_list_ms": [], "chart_ms": []}
    is_stopped = False
    with closing(open_database(database_url, runs_root, checks_schema=False)) as database:
        questions: dict[str, Callable[[], object]] = {
            "runs_list_ms": lambda: list_runs(database),
            "chart_ms": lambda: metric_series(database, run_id, ["reward/mean"]),
        }
        connection.send("ready")
        while not is_stopped or not times["chart_ms"]:
            is_stopped = is_stopped or connection.poll(READERS_PAUSE_SECONDS)
            if not list_runs(database):
                continue
            for name, ask in questions.items():
                began_at = time.perf_counter()
                ask()
                times[name].append(1e3 * (time.perf_counter() - began_at))
    connection.send({name: median(item) for name, item in times.items()})


def main() -> int:
    """Measure, print and report; 0 whether or not the targets were met."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--short", action="store_true", help="fewer and smaller steps")
    parser.add_argument("--database-url", help="an empty database to ingest into; default: SQLite")
    arguments = parser.parse_args()
    url, is_short = arguments.database_url, arguments.short
    if url is not None:
        with tempfile.TemporaryDirectory() as name, closing(open_database(url, Path(name))) as database:
            if list_runs(database, RunFilter(is_archived=None), limit=1):
                parser.error("--database-url: expected an empty database, got one with runs; give another one.")
    num_paper, num_embedded, num_metric, num_trajectory = (1, 2, 300, 1) if is_short else (10, 60, 8000, 40)
    paper = SMALL_STEP if is_short else PAPER_STEP
    with tempfile.TemporaryDirectory() as name:
        figures = measure_paper(Path(name), paper, num_paper) | measure_embedded(Path(name), num_embedded)
    with tempfile.TemporaryDirectory() as name:
        figures |= measure_replay(Path(name), PAPER_STEP)
    seconds, _ = measure_ingest(url, NO_ROLLOUTS, num_metric)
    num_points = num_metric * len(next(StepMaker(NO_ROLLOUTS).reports(1)).metrics)
    figures["ingest/metric_points_per_s"] = num_points / seconds
    seconds, readers = measure_ingest(url, INGESTED_STEP, num_trajectory)
    figures["ingest/trajectories_per_s"] = num_trajectory * INGESTED_STEP.num_questions * 8 / seconds
    figures |= {f"readers/{key}": value for key, value in readers.items()}
    for key, value in figures.items():
        print(f"{key:40}{value:14.4g}")
    share = 1.0 if url is None else 0.5
    rates = {key: f">= {rate * share:g}" for key, rate in RATES.items()}
    report("recording", figures, TARGETS | rates | STAGES | READERS)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
