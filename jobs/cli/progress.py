"""A run's progress on a terminal: bar, step, time left, Pass@1, buffer and retired questions."""

import time
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from db.rows.display_names import BATCH_PASS_RATE
from jobs.actions.progress import count_pieces
from jobs.cli.following import RunFollower
from jobs.runs.lookup import open_run
from jobs.runs.state import RunState

METRICS_SECONDS = 1.0


class RunProgress:
    """Shows one run on stderr; without a terminal it prints only changes of the state."""

    def __init__(self, runs_root: Path, run_id: str) -> None:
        self._console = Console(stderr=True)
        self._run = open_run(runs_root, run_id)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[figures]}"),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task: TaskID = self._progress.add_task("queued", total=count_pieces(self._run), figures="")
        self._status = ""
        self._metrics_at = 0.0

    def __enter__(self) -> "RunProgress":
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()

    def show(self, state: RunState, follower: RunFollower) -> None:
        """Show the run's state, step and newest figures."""
        if state.status != self._status and not self._console.is_terminal:
            self._console.print(f"{follower.run_id}: {state.status}")
        self._status = state.status
        step = state.heartbeat.step if state.heartbeat else 0
        total = count_pieces(self._run)
        self._progress.update(self._task, completed=step, total=total, description=state.status)
        if self._console.is_terminal and time.monotonic() >= self._metrics_at:
            self._metrics_at = time.monotonic() + METRICS_SECONDS
            self._progress.update(self._task, figures=_figures(follower.metrics()))


def _figures(metrics: dict[str, float]) -> str:
    if not metrics:
        return ""
    return (
        f"{BATCH_PASS_RATE} {metrics.get('reward/pass_at_1', 0.0):.3f}  "
        f"buffer {metrics.get('buffer/num_questions', 0):.0f}  retired {metrics.get('buffer/num_retired', 0):.0f}"
    )
