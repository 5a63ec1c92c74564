"""Checking every file of runs against its manifest, or against the checksum of each of its lines."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from exgrpo.jobs.evaluation.recorded_answers import find_answer_damage
from exgrpo.jobs.runs.attempts import read_outcome
from exgrpo.jobs.runs.checkpoints import Checkpoint, find_fault, list_checkpoints
from exgrpo.jobs.runs.directory import RunDirectory, list_run_directories, list_unreadable, unreadable_below
from exgrpo.jobs.runs.journal import Journal
from exgrpo.jobs.runs.recording.event_reader import EventReader, find_missing_events
from exgrpo.jobs.runs.state import describe_run
from exgrpo_core.experience_management.replay_buffer import BufferCorruptionError, ReplayBuffer
from exgrpo_core.faults import Fault, FaultKind
from exgrpo_core.recording.run_folder import RUN_ID
from exgrpo_core.state import BUFFER_FILE

BUFFER_FOLDER = "buffer"
_ROWS_AT_ONCE = 1024


@dataclass(frozen=True, slots=True)
class Damage:
    """A fault of a run; `run_id` is "" for a file of the workbench."""

    run_id: str
    fault: Fault


def verify_root(runs_root: Path) -> list[Damage]:
    """Return all damage of a runs root: its journal and every run."""
    faults = Journal(runs_root).find_damage()
    faults += [Fault(FaultKind.UNREADABLE, name, details=why) for name, why in list_unreadable(runs_root).items()]
    specs = sorted(path.parent for path in runs_root.glob("*/spec.json") if RUN_ID.fullmatch(path.parent.name))
    # Without `run.json` a folder is no run, and the list of runs leaves it out.
    lost = [Damage(run.name, Fault(FaultKind.MISSING, "run.json")) for run in specs if not (run / "run.json").exists()]
    of_runs = [damage for run in list_run_directories(runs_root) for damage in verify_run(run)]
    return [Damage("", fault) for fault in faults] + lost + of_runs


def verify_run(run: RunDirectory) -> list[Damage]:
    """Return all damage of a run: its description, ends, events, answers, checkpoints and replay buffer."""
    checks: dict[str, Callable[[RunDirectory], Iterable[Fault]]] = {
        "spec.json": lambda run: describe_run(run).faults,
        "rights": _unreadable,
        "checkpoints": _damaged_checkpoints,
        "attempts": _damaged_events,
        "evaluation": lambda run: find_answer_damage(run.path),
        BUFFER_FOLDER: _damaged_buffer,
    }
    faults: list[Fault] = []
    for name, check in checks.items():
        try:
            faults += check(run)
        except Exception as error:  # noqa: BLE001 - whatever the files of a run hold, the others are checked too
            faults.append(Fault(FaultKind.UNREADABLE, name, details=f"{type(error).__name__}: {error}"))
    return [Damage(run.run_id, fault) for fault in dict.fromkeys(faults)]


def _unreadable(run: RunDirectory) -> Iterator[Fault]:
    for path, why in unreadable_below(run.path).items():
        yield Fault(FaultKind.UNREADABLE, str(path.relative_to(run.path)), details=why)


def _damaged_checkpoints(run: RunDirectory) -> Iterator[Fault]:
    for path in list_checkpoints(run.checkpoints_path):
        fault = find_fault(path)
        # A live run removes old checkpoints.
        if fault is not None and path.exists():
            yield fault


def _damaged_events(run: RunDirectory) -> Iterator[Fault]:
    # Read before the events: a live run may record more events and end while they are read.
    ends = {attempt: read_outcome(run.attempt_path(attempt)) for attempt in run.attempts()}
    for batch in EventReader(run).batches():
        yield from batch.faults
    for attempt, end in ends.items():
        if end is not None and end.fault is not None:
            yield end.fault
        yield from find_missing_events(attempt, end, batch.position)


def _damaged_buffer(run: RunDirectory) -> Iterator[Fault]:
    """Yield each damage of the trajectories in the replay buffer of the newest whole checkpoint."""
    newest = next((path for path in list_checkpoints(run.checkpoints_path) if find_fault(path) is None), None)
    if newest is None or not (snapshot := Checkpoint(0, newest).experience / BUFFER_FILE).exists():
        return
    try:
        with closing(ReplayBuffer.restore(run.buffer_path, snapshot)) as buffer:
            num_rows = len(buffer.stored_rows())
            for first in range(0, num_rows, _ROWS_AT_ONCE):
                try:
                    buffer.experiences(np.arange(first, min(first + _ROWS_AT_ONCE, num_rows)))
                except BufferCorruptionError as error:
                    yield _lost_experience(run, error)
    except (BufferCorruptionError, ValueError) as error:
        yield _lost_experience(run, error)


def _lost_experience(run: RunDirectory, error: Exception) -> Fault:
    details = str(error).replace(f"{run.path}/", "")
    return Fault(FaultKind.LOST_EXPERIENCE, BUFFER_FOLDER, details=details)
