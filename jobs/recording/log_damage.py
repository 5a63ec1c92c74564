"""Whether the log of a replay buffer still has every step that was recorded, and its segments their trajectories."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from exgrpo_core.experience_management.storage.append_file import ODD_CONTENT, BufferCorruptionError
from exgrpo_core.experience_management.storage.segments import SegmentExtent
from exgrpo_core.experience_management.storage.snapshot import read_snapshot
from exgrpo_core.experience_management.storage.step_log import LoggedStep, LogPosition, find_log_faults
from exgrpo_core.experience_management.storage.step_replay import open_with
from exgrpo_core.faults import Fault, FaultKind
from exgrpo_core.state import BUFFER_FILE
from jobs.recording.event_reader import iterate_events
from jobs.runs.checkpoints import checkpoint_path, later_steps, list_steps, newest_snapshot
from jobs.runs.directory import RunDirectory, RunDirectoryError
from jobs.specs.train import SpecError, TrainSpec

BUFFER_FOLDER = "buffer"


def find_experience_damage(run: RunDirectory) -> Fault | None:
    """Return the damage that keeps a resume from recorded steps, whatever is damaged; None where it can keep all."""
    return find_log_damage(run) or _find_lost_rows(run)


def find_log_damage(run: RunDirectory) -> Fault | None:
    """Return the damage of the buffer's log that keeps a resume from recorded steps, None where it can keep all.

    Only runs that keep the newest experience read their log.
    """
    try:
        if (kept := _kept_steps(run)) is None:
            return None
        logged = list({step.log: step.header["step"] for step in kept.steps}.values())
    except SpecError:
        return None
    # Whatever an imported log holds.
    except (OSError, ValueError, TypeError, LookupError) as error:
        return Fault(FaultKind.UNREADABLE, BUFFER_FOLDER, details=type(error).__name__)
    for attempt, step in reversed(kept.recorded.items()):
        # An attempt that was killed before it recorded a step may have a log.
        while logged and logged[-1] < step:
            logged.pop()
        if not logged:
            return Fault(FaultKind.LOST_STEPS, BUFFER_FOLDER, (attempt, step))
        logged.pop()
    return None


def find_damaged_logs(run: RunDirectory) -> list[Fault]:
    """Return the logs of the buffer that are missing or damaged, whether a resume needs them or not."""
    try:
        branched_from = run.read_run_info()["branched_from_step"]
    except RunDirectoryError:
        # Whether other logs are missing depends on whether it is a branch.
        return find_log_faults(run.buffer_path, [], is_branch=True)
    positions = []
    for step in list_steps(run.checkpoints_path):
        with suppress(BufferCorruptionError, *ODD_CONTENT):
            snapshot = checkpoint_path(run.checkpoints_path, step) / "experience" / BUFFER_FILE
            logged = read_snapshot(snapshot)[0].get("logged")
            # A branch's first checkpoint is its parent's.
            if logged and (branched_from is None or step > branched_from):
                positions.append(LogPosition(*logged))
    return find_log_faults(run.buffer_path, positions, branched_from is not None)


def _find_lost_rows(run: RunDirectory) -> Fault | None:
    try:
        if (kept := _kept_steps(run)) is None or not kept.steps:
            return None
        extents = [SegmentExtent(**extent) for extent in kept.header.get("segments", [])]
        store, _, damage = open_with(kept.steps, run.buffer_path, extents, None, 1)
    # A damaged segment of the checkpoint itself is named with the checkpoint, and a log by its own check.
    except (SpecError, BufferCorruptionError, OSError, ValueError, TypeError, LookupError):
        return None
    store.close()
    details = damage.replace(f"{run.path}/", "")
    return Fault(FaultKind.LOST_EXPERIENCE, BUFFER_FOLDER, details=details) if damage else None


class _KeptSteps(NamedTuple):
    """The newest snapshot's header, the steps after it by the buffer's log, and the last of each attempt by events."""

    header: Mapping[str, Any]
    steps: list[LoggedStep]
    recorded: dict[int, int]


def _kept_steps(run: RunDirectory) -> _KeptSteps | None:
    """Return what a resume keeps; None of a run that keeps no later experience."""
    spec = run.job_spec()
    if not isinstance(spec, TrainSpec) or spec.resume.experience != "newest" or not spec.algorithm.replays_experience:
        return None
    saved_step, header = newest_snapshot(run)
    # A live run writes a step into the log before its event, so the log has every step of events that are read first.
    recorded = _last_steps(run, saved_step)
    return _KeptSteps(header, later_steps(run, header), recorded)


def _last_steps(run: RunDirectory, saved_step: int) -> dict[int, int]:
    """Return the last recorded step of each attempt, in order, that did any after the checkpoint at `saved_step`."""
    saved = [event["attempt"] for event in iterate_events(run, "checkpoint") if event["step"] == saved_step]
    saved_in = max(saved, default=0)
    last: dict[int, int] = {}
    for event in iterate_events(run, "step"):
        attempt, step = event["attempt"], event["step"]
        # Without its event, a checkpoint may be of any attempt, and has all steps up to its own.
        if attempt >= saved_in and step > saved_step:
            last[attempt] = max(step, last.get(attempt, 0))
    return last
