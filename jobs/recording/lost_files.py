"""Attempts and checkpoints that a run had, by its other files, and has no more."""

from exgrpo_core.faults import Fault, FaultKind
from jobs.recording.event_reader import iterate_events
from jobs.runs.checkpoints import checkpoint_path, list_checkpoints
from jobs.runs.directory import RunDirectory


def find_lost_attempts(run: RunDirectory) -> list[Fault]:
    """Return the attempts that began and whose folders are missing."""
    attempts = range(1, run.newest_attempt() + 1)
    names = [f"attempts/{attempt:04d}" for attempt in attempts if not run.attempt_path(attempt).is_dir()]
    return [Fault(FaultKind.MISSING, name) for name in names]


def find_lost_checkpoint(run: RunDirectory) -> Fault | None:
    """Return the checkpoint that was recorded last if it and all later ones are missing.

    Older ones are removed by the run itself, and a live run may have removed this one since it was recorded.
    """
    recorded = [event["step"] for event in iterate_events(run, "checkpoint")]
    if not recorded:
        return None
    path = checkpoint_path(run.checkpoints_path, recorded[-1])
    is_there = any(kept.name >= path.name for kept in list_checkpoints(path.parent))
    if is_there or any(path.parent.glob(f"damaged-*-{path.name}")):
        return None
    return Fault(FaultKind.MISSING, f"{path.parent.name}/{path.name}")


def refusal_of_new_start(run: RunDirectory) -> str:
    """Return why a run that recorded checkpoints and has none any more is not resumed: it would begin anew; else ""."""
    if list_checkpoints(run.checkpoints_path) or not any(iterate_events(run, "checkpoint")):
        return ""
    return (
        f"{run.run_id} cannot be resumed: its checkpoints, which its events name, are gone; copy them from a backup, "
        "or clone the run to train anew."
    )
