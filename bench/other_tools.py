"""How fast the metrics of many runs come back from TensorBoard, MLflow and Trackio, and from this workbench.

Made-up runs (`bench.synthetic_runs`) with the metrics that every step has are given to every tool by its package, and
read by another process (`bench.tool_process`, in the environment of `--python`): the list of runs, as each tool
gives it, every value of one metric in one run, and in all runs. None of the three can search or filter a run's
trajectories: nothing is asked about those.

Run `python -m bench.other_tools --python .venv-others/bin/python`; `make bench` makes that environment. `--short` for
ten runs of 100 steps instead of 20 of 500.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np

from app.components.widgets import curves
from bench.report import Figure, report
from bench.synthetic_runs import SYNTHETIC, SyntheticSize, add_made_up_runs, recorded_run
from bench.tool_process import KEY, REPEATS, TOOLS, milliseconds
from db.connections.opening import open_database
from db.queries import metrics, runs
from db.queries.run_filter import RunFilter

FULL = SyntheticSize(20, 500, 2000)
SHORT = SyntheticSize(10, 100, 1000)
SERIES_FILE = "series.npz"


def main() -> None:
    """Make the runs, ask everyone, and print the figures."""
    parser = argparse.ArgumentParser(description="Time other tools on the same metrics.")
    parser.add_argument("--short", action="store_true", help="few short runs")
    parser.add_argument("--python", type=Path, required=True, help="interpreter that has the other tools")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tools-") as name:
        folder = Path(name)
        runs_root = folder / "runs"
        run_id = recorded_run(runs_root, None, print)
        add_made_up_runs(runs_root, None, SHORT if options.short else FULL, run_id, lambda _said: None)
        num_points = _write_series(runs_root, folder / SERIES_FILE)
        print(f"{num_points:,} points")
        figures: dict[str, Figure] = {"num_points": num_points}
        figures |= _named("workbench", _ask_workbench(runs_root))
        for tool in TOOLS:
            for action in ("write", "ask"):
                figures |= _named(tool, _run(options.python, action, tool, folder))
    report("other_tools", figures, {})


def _run(python: Path, action: str, tool: str, folder: Path) -> dict[str, float]:
    command = [python, "-m", "bench.tool_process", action, tool, folder / SERIES_FILE, folder / tool]
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"{tool}: did not {action}; what it printed is above.")
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def _named(tool: str, figures: dict[str, float]) -> dict[str, Figure]:
    print(f"{tool:<12}", "  ".join(f"{name} {value:,.1f}" for name, value in figures.items()))
    return {f"{tool}/{name}": value for name, value in figures.items()}


def _write_series(runs_root: Path, file: Path) -> int:
    """Write runs, keys and values (R, K, S) of what every step has, and return how many values there are."""
    database = open_database(None, runs_root)
    names = sorted(row.run_id for row in runs.list_runs(database, RunFilter(), limit=None) if SYNTHETIC in row.run_id)
    size = len(metrics.metric_series(database, names[0], [KEY])[KEY])
    recorded = metrics.metric_series(database, names[0], [KEY, *curves.KEYS])
    keys = sorted(key for key, points in recorded.items() if len(points) == size)
    values = []
    for name in names:
        series = metrics.metric_series(database, name, keys)
        values.append([[point.value for point in series[key]] for key in keys])
    database.close()
    whole = np.array(values, dtype=np.float64)
    np.savez(file, runs=np.array(names), keys=np.array(keys), values=whole)
    return int(whole.size)


def _ask_workbench(runs_root: Path) -> dict[str, float]:
    began_at = time.perf_counter()
    database = open_database(None, runs_root)
    names = [row.run_id for row in runs.list_runs(database, RunFilter(), limit=None) if SYNTHETIC in row.run_id]
    figures = {"open_ms": 1000 * (time.perf_counter() - began_at)}
    questions: dict[str, Callable[[], object]] = {
        "list_ms": lambda: runs.list_runs(database, RunFilter(), limit=None),
        "chart_ms": lambda: metrics.metric_series(database, names[-1], [KEY]),
        "all_runs_ms": lambda: [metrics.metric_series(database, name, [KEY]) for name in names],
    }
    for name, ask in questions.items():
        figures[name] = median(milliseconds(ask) for _ in range(REPEATS))
    database.close()
    return figures


if __name__ == "__main__":
    main()
