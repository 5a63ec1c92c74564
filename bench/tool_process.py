"""One other tool on the series of `bench.other_tools`: its package writes them, and a reader reads them.

`python -m bench.tool_process write|ask TOOL SERIES.npz FOLDER`, in an environment of `requirements/other-tools.txt`.
Prints a line of JSON: `write_s`, or `open_ms`, from nothing but the imports to the first list of runs, and medians
`list_ms`, `chart_ms` and `all_runs_ms`.
"""

import json
import logging
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

KEY = "reward/mean"
REPEATS = 7
START = 1_767_225_600.0
"""When every made-up run began, in seconds since 1970; a step takes one."""
MLFLOW_BATCH = 1000
TIMEOUT_SECONDS = 300.0

Asked = tuple[Callable[[], object], Callable[[], object], Callable[[], object]]
"""The list of runs as the tool gives it, every value of one metric in one run, and in all runs."""


class TensorBoard:
    """Event files, read by the data server that TensorBoard starts, and queried as its server queries it."""

    def __init__(self, folder: Path) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.context import RequestContext
        from tensorboard.data import server_ingester
        from tensorboard.data.provider import RunTagFilter
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
        from tensorboard.util.grpc_util import ChannelCredsType

        self._folder = folder
        self._event, self._summary, self._writer = Event, Summary, EventFileWriter
        self._context, self._filter, self._server = RequestContext(), RunTagFilter, server_ingester
        self._credentials = ChannelCredsType.LOCAL

    def write(self, run: str, keys: list[str], values: np.ndarray) -> None:
        """Write one run's values (K, S)."""
        writer, summary = self._writer(str(self._folder / run)), self._summary
        for step in range(values.shape[1]):
            made = [
                summary.Value(tag=key, simple_value=value) for key, value in zip(keys, values[:, step], strict=True)
            ]
            writer.add_event(self._event(step=step + 1, wall_time=START + step, summary=summary(value=made)))
        writer.close()

    def open(self, num_runs: int, num_steps: int) -> Asked:
        """Start the data server, wait until it has read every step, and return what answers."""
        ingester = self._server.SubprocessServerDataIngester(
            self._server.get_server_binary(),
            str(self._folder),
            reload_interval=5,
            channel_creds_type=self._credentials,
            samples_per_plugin={"scalars": 0},
        )
        ingester.start()
        provider = ingester.data_provider

        def read(runs: list[str] | None) -> Any:  # noqa: ANN401 - what its provider gives
            return provider.read_scalars(
                self._context,
                experiment_id="",
                plugin_name="scalars",
                downsample=10_000,
                run_tag_filter=self._filter(runs=runs, tags=[KEY]),
            )

        until = time.perf_counter() + TIMEOUT_SECONDS
        while True:
            tags_of_run = read(None)
            if len(tags_of_run) == num_runs and all(len(tags[KEY]) == num_steps for tags in tags_of_run.values()):
                break
            if time.perf_counter() > until:
                raise TimeoutError("tensorboard: the data server did not read every step in time.")
            time.sleep(0.01)
        names = sorted(tags_of_run)
        return (
            lambda: provider.list_runs(self._context, experiment_id=""),
            lambda: read([names[-1]]),
            lambda: read(None),
        )


class MLflow:
    """Its tracking store in a SQLite file."""

    def __init__(self, folder: Path) -> None:
        import mlflow
        from mlflow import MlflowClient

        mlflow.set_tracking_uri(f"sqlite:///{folder / 'mlflow.db'}")
        self._client: Any = MlflowClient()
        experiment = self._client.get_experiment_by_name("runs")
        self._experiment = experiment.experiment_id if experiment else self._client.create_experiment("runs")

    def write(self, run: str, keys: list[str], values: np.ndarray) -> None:
        """Write one run's values (K, S)."""
        from mlflow.entities import Metric

        made = self._client.create_run(self._experiment, run_name=run)
        points = [
            Metric(key, float(value), int(1000 * (START + step)), step + 1)
            for step, column in enumerate(values.T)
            for key, value in zip(keys, column, strict=True)
        ]
        for first in range(0, len(points), MLFLOW_BATCH):
            self._client.log_batch(made.info.run_id, metrics=points[first : first + MLFLOW_BATCH], synchronous=True)
        self._client.set_terminated(made.info.run_id)

    def open(self, _num_runs: int, _num_steps: int) -> Asked:
        """Return what answers."""

        def list_runs() -> list[Any]:
            return list(self._client.search_runs([self._experiment], max_results=1000))

        names = [run.info.run_id for run in list_runs()]
        return (
            list_runs,
            lambda: self._client.get_metric_history(names[-1], KEY),
            lambda: [self._client.get_metric_history(name, KEY) for name in names],
        )


class Trackio:
    """Its SQLite file of a project."""

    def __init__(self, folder: Path) -> None:
        os.environ["TRACKIO_DIR"] = str(folder)
        from trackio.sqlite_storage import SQLiteStorage

        self._storage: Any = SQLiteStorage

    def write(self, run: str, keys: list[str], values: np.ndarray) -> None:
        """Write one run's values (K, S)."""
        rows = [dict(zip(keys, map(float, column), strict=True)) for column in values.T]
        self._storage.bulk_log("runs", run, rows, steps=list(range(1, values.shape[1] + 1)))

    def open(self, _num_runs: int, _num_steps: int) -> Asked:
        """Return what answers."""
        names = sorted(self._storage.get_runs("runs"))
        return (
            lambda: self._storage.get_runs("runs"),
            lambda: self._storage.get_metric_values("runs", names[-1], KEY),
            lambda: [self._storage.get_metric_values("runs", name, KEY) for name in names],
        )


TOOLS: dict[str, Callable[[Path], TensorBoard | MLflow | Trackio]] = {
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
    "trackio": Trackio,
}


def main(action: str, name: str, series_file: str, folder: str) -> None:
    """Give the tool the series or ask it, and print the figures."""
    logging.disable(logging.WARNING)
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    series = np.load(series_file)
    keys, names, values = [str(key) for key in series["keys"]], series["runs"], series["values"]
    tool = TOOLS[name](path)
    began_at = time.perf_counter()
    if action == "write":
        for run, value in zip(names, values, strict=True):
            tool.write(str(run), keys, value)
        figures = {"write_s": time.perf_counter() - began_at}
    else:
        questions = tool.open(len(names), values.shape[2])
        questions[0]()
        figures = {"open_ms": 1000 * (time.perf_counter() - began_at)}
        for key, ask in zip(("list_ms", "chart_ms", "all_runs_ms"), questions, strict=True):
            figures[key] = median(milliseconds(ask) for _ in range(REPEATS))
    print(json.dumps(figures))


def milliseconds(ask: Callable[[], object]) -> float:
    """Return how long an answer takes."""
    began_at = time.perf_counter()
    ask()
    return 1000 * (time.perf_counter() - began_at)


if __name__ == "__main__":
    main(*sys.argv[1:])
