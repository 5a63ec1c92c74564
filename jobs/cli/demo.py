"""The demos: one warm model trained with ExGRPO and with on-policy Dr.GRPO, side by side, for real."""

import json
import os
import shlex
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from exgrpo.jobs.actions.queueing import queue_job
from exgrpo.jobs.actions.run_actions import DEMO_TAG, tag
from exgrpo.jobs.cli.options import DEFAULT_RUNS_ROOT, EXIT_FAILURE, RunsRoot, print_result, print_status, table_console
from exgrpo.jobs.cli.probe import describe
from exgrpo.jobs.cli.workbench import Workbench
from exgrpo.jobs.execution.supervisor.indexing import open_fresh_index
from exgrpo.jobs.execution.supervisor.instance import supervisor_command
from exgrpo.jobs.execution.supervisor.loop import LOOP_SECONDS, Supervisor, SupervisorSettings
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.report import report_run
from exgrpo.jobs.runs.state import RunState, read_state
from exgrpo.jobs.specs.train import ModelSpec, load_preset
from exgrpo.jobs.training.probe import probe
from exgrpo_core.recording.run_status import RunStatus

PRESETS = ("chains-exgrpo", "chains-on-policy")
REAL_PRESETS = ("smollm2-word-problems", "smollm2-word-problems-on-policy")
REAL_WARM_PRESET = "smollm2-word-problems-sft"
STATUS_SECONDS = 15.0


def demo(
    headless: Annotated[
        bool, typer.Option("--headless", help="Open no browser, and print a summary as one line of JSON.")
    ] = False,
    real: Annotated[
        bool, typer.Option("--real", help="Train SmolLM2-135M on English word problems instead. Downloads 93 MB.")
    ] = False,
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
) -> None:
    """Train a tiny model and show it. Trains with ExGRPO and with Dr.GRPO."""
    raise typer.Exit(run_demo(runs_root, headless, is_real=real))


def run_demo(runs_root: Path, is_headless: bool, is_real: bool = False) -> int:
    """Train both methods, print the results and, unless headless, serve the workbench during and after training.

    Returns the exit code. The last line of the result is JSON.
    """
    toys = (queue_job(runs_root, load_preset(name)) for name in PRESETS)
    run_ids = _submit_real(runs_root) if is_real else [*toys]
    for run_id in run_ids:
        tag(runs_root, run_id, DEMO_TAG)
    num_running = min(len(run_ids), os.cpu_count() or 1)
    if is_headless:
        return _train_headless(runs_root, run_ids, num_running)
    threading.Thread(target=_print_results_at_end, args=(runs_root, run_ids), daemon=True).start()
    return Workbench(runs_root, None, supervisor_command(runs_root, num_running)).serve(opens_browser=True)


def _submit_real(runs_root: Path) -> list[str]:
    """Probe the model, and queue its warm start and the runs that wait for that; return the ids of all three."""
    warm_start = load_preset(REAL_WARM_PRESET)
    print_status("SmolLM2-135M is downloaded and converted the first time, then answers a few questions.")
    print_status(describe(probe(warm_start), warm_start.data.source))
    warm_id = queue_job(runs_root, warm_start)
    print_status(f"Warm start: {warm_id} imitates demonstrations, some of them wrong; both runs start from its end.")
    start = {"waits_for": warm_id, "model": ModelSpec(source=f"{warm_id}@last")}
    return [warm_id, *(queue_job(runs_root, load_preset(name).model_copy(update=start)) for name in REAL_PRESETS)]


def _train_headless(runs_root: Path, run_ids: Sequence[str], num_running: int) -> int:
    supervisor = Supervisor(runs_root, settings=SupervisorSettings(max_running=num_running))
    try:
        states = _wait(runs_root, run_ids, supervisor.poll)
    finally:
        supervisor.close()
    code = _print_results(runs_root, run_ids, states)
    print_status(f"`exgrpo up --runs-root {shlex.quote(str(runs_root))}` opens the pages.")
    return code


def _print_results_at_end(runs_root: Path, run_ids: Sequence[str]) -> None:
    states = _wait(runs_root, run_ids, lambda: None)
    time.sleep(4 * LOOP_SECONDS)
    _print_results(runs_root, run_ids, states)
    print_status("The workbench keeps running; Ctrl-C ends it.")


def _wait(runs_root: Path, run_ids: Sequence[str], poll: Callable[[], None]) -> list[RunState]:
    runs = [RunDirectory.open(runs_root, run_id) for run_id in run_ids]
    specs = [run.spec() for run in runs]
    printed_at = time.monotonic()
    while True:
        poll()
        states = [read_state(run) for run in runs]
        if all(state.is_ended for state in states):
            return states
        if time.monotonic() - printed_at >= STATUS_SECONDS:
            printed_at = time.monotonic()
            steps = [state.heartbeat.step if state.heartbeat else 0 for state in states]
            pairs = zip(specs, steps, strict=True)
            print_status(", ".join(f"{spec.name}: step {step} of {spec.num_steps}" for spec, step in pairs))
        time.sleep(LOOP_SECONDS)


def _print_results(runs_root: Path, run_ids: Sequence[str], states: Sequence[RunState]) -> int:
    with open_fresh_index(runs_root, None) as database:
        reports = [report_run(database, run_id) for run_id in run_ids]
    table_console().print(_table(reports))
    print_result(json.dumps({report["method"]: _figures(report) for report in reports}))
    for report, state in zip(reports, states, strict=True):
        if state.status is not RunStatus.FINISHED:
            print_status(f"Run {report['run_id']} {state.status}: {state.reason}")
    return 0 if all(state.status is RunStatus.FINISHED for state in states) else EXIT_FAILURE


def _figures(report: dict[str, Any]) -> dict[str, Any]:
    scores = report["evaluations"].get("held_out", {})
    before, after = scores.get("before"), scores.get("after")
    return {
        "run_id": report["run_id"],
        "avg_at_8_before": round(before["avg"], 4) if before else None,
        "avg_at_8_after": round(after["avg"], 4) if after else None,
        "steps": report["steps"],
        "seconds": report["seconds"],
        "buckets": report["buckets"],
        "retired": report["retired"],
        "replays": report["replays"],
    }


def _table(reports: Sequence[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, title="Held-out questions, 8 samples each at temperature 0.6")
    for heading in ("method", "Avg@8 before", "after", "steps", "seconds in steps", "buffered", "retired", "replays"):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    for report in reports:
        figures = _figures(report)
        scores = [figures["avg_at_8_before"], figures["avg_at_8_after"]]
        table.add_row(
            report["method"],
            *("-" if score is None else f"{score:.3f}" for score in scores),
            str(figures["steps"]),
            f"{figures['seconds']:.0f}",
            str(report["buffered"]),
            str(figures["retired"]),
            str(figures["replays"]),
        )
    return table
