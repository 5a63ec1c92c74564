"""Progress of a job of any kind, by its files, and what a stopping one waits for."""

from pathlib import Path

from exgrpo.jobs.evaluation.recorded_answers import FOLDER
from exgrpo.jobs.runs.attempts import read_heartbeat, read_plan
from exgrpo.jobs.runs.control import DEFAULT_GRACE_SECONDS, Phase, expected_stop_seconds, stop_grace
from exgrpo.jobs.runs.directory import RunDirectory, RunDirectoryError
from exgrpo.jobs.runs.people import Role, needs
from exgrpo.jobs.runs.state import read_supervisor
from exgrpo.jobs.specs.judging import JudgeSpec
from exgrpo.jobs.specs.train import SpecError, TrainSpec

_PHASE_NAMES = {
    Phase.STEP: "the running step, then for a checkpoint",
    Phase.EVALUATION: "the running evaluation, then for a checkpoint",
    Phase.CHECKPOINT: "the checkpoint that is being written",
    Phase.ANSWERS: "the answers that were asked for",
    None: "the worker to end",
}
_MINUTES_FROM_SECONDS = 120


def count_pieces(run: RunDirectory) -> int | None:
    """Return the number of steps, questions or votes of a job; None while it is unknown."""
    spec = run.job_spec()
    if isinstance(spec, TrainSpec):
        return spec.num_steps
    is_judge = isinstance(spec, JudgeSpec)
    return read_plan(run.attempt_path(run.newest_attempt()) if is_judge else run.path / FOLDER)


@needs(Role.VIEWER)
def job_progress(runs_root: Path, run_id: str) -> tuple[int, int] | None:
    """Return how many steps, questions or votes are done, and of how many; None while the total is unknown."""
    try:
        run = RunDirectory.open(runs_root, run_id)
        attempt = run.newest_attempt()
        total = count_pieces(run) if attempt else None
    except (RunDirectoryError, SpecError):
        return None
    heartbeat = read_heartbeat(run.attempt_path(attempt))
    return None if total is None else (heartbeat.step if heartbeat else 0, total)


@needs(Role.VIEWER)
def describe_stop(runs_root: Path, run_id: str) -> str | None:
    """Return what a stopping job waits for and how long that may take; None unless a stop of it was requested."""
    try:
        run = RunDirectory.open(runs_root, run_id)
    except RunDirectoryError:
        return None
    heartbeat = read_heartbeat(run.attempt_path(run.newest_attempt())) if run.stop_requested() else None
    if heartbeat is None:
        return None
    supervisor = read_supervisor(runs_root)
    shortest_seconds = supervisor.stop_grace_seconds if supervisor else DEFAULT_GRACE_SECONDS
    grace = stop_grace(heartbeat.phase, heartbeat.phase_seconds, shortest_seconds)
    expected = expected_stop_seconds(heartbeat.phase_seconds)
    recent = f", about {_time_text(expected)} by its recent times" if expected else ""
    return f"It waits for {_PHASE_NAMES[heartbeat.phase]}{recent}; after {_time_text(grace)} it is ended by force."


def _time_text(seconds: float) -> str:
    return f"{round(seconds)} s" if seconds < _MINUTES_FROM_SECONDS else f"{round(seconds / 60)} min"
