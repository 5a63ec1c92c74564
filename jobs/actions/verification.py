"""Checking every file of runs against its checksum, and saying what can be recovered."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from exgrpo_core.experience_management.replay_buffer import BufferCorruptionError, ReplayBuffer
from exgrpo_core.faults import Fault, FaultKind
from exgrpo_core.run_files.attempt_gate import OUTCOME_FILE
from exgrpo_core.run_files.run_folder import RUN_ID
from exgrpo_core.state import BUFFER_FILE
from jobs.evaluation.recorded_answers import FOLDER, find_answer_damage, list_files
from jobs.recording.event_reader import EventReader, find_missing_events, iterate_events
from jobs.recording.lost_files import find_lost_attempts, find_lost_checkpoint
from jobs.runs.attempts import read_heartbeat, read_outcome
from jobs.runs.checkpoints import Checkpoint, find_fault, list_checkpoints
from jobs.runs.control import ENDED
from jobs.runs.directory import RunDirectory, list_run_directories, list_unreadable, unreadable_below
from jobs.runs.journal import Journal
from jobs.runs.state import describe_run, has_process

BUFFER_FOLDER = "buffer"
_MAX_STEPS = 16
_ROWS_AT_ONCE = 1024
_REMEDY_OF_BUFFER = "Other trajectories are whole; a run that replays this one fails, so copy the file from a backup."
_REMEDY_OF_LOST = "What it held is lost; copy it from a backup."
_REMEDY_OF_RIGHTS = "All else is checked; let this user read it, as by chown."
_REMEDY_OF_ANSWERS = (
    "Scores and other answers are kept; a resume asks lost questions again, else score the model again."
)


Found = list[tuple[Fault, str]]
"""Damage of a run with what can be recovered of it."""


@dataclass(frozen=True, slots=True)
class Damage:
    """A fault, `run_id` "" of no run, and a sentence on what can be recovered."""

    run_id: str
    fault: Fault
    remedy: str


def verify_root(runs_root: Path) -> list[Damage]:
    """Return all damage of a runs root: its workbench folder and every run."""
    remedy = "Entries before and after are whole; tags, notes and requests of those named must be made again."
    damaged = [(fault, remedy) for fault in Journal(runs_root).find_damage()]
    unreadable = list_unreadable(runs_root)
    damaged += [(Fault(FaultKind.UNREADABLE, name, details=why), _REMEDY_OF_RIGHTS) for name, why in unreadable.items()]
    of_workbench = [Damage("", fault, remedy) for fault, remedy in damaged] + _folders_without_info(runs_root)
    return of_workbench + [damage for run in list_run_directories(runs_root) for damage in verify_run(run)]


def _folders_without_info(runs_root: Path) -> list[Damage]:
    """Return the folders that are no runs only because they lack `run.json`."""
    names = sorted(path.parent.name for path in runs_root.glob("*/spec.json") if RUN_ID.fullmatch(path.parent.name))
    remedy = (
        "Without it the folder is not shown as a run. All else is kept; copy run.json from a backup, or from another "
        "run to see it under that run's name."
    )
    fault = Fault(FaultKind.MISSING, "run.json")
    return [Damage(name, fault, remedy) for name in names if not (runs_root / name / "run.json").exists()]


def verify_run(run: RunDirectory) -> list[Damage]:
    """Return all damage of a run: its description, ends, events, answers, checkpoints and replay buffer."""
    faults_of = {path: find_fault(path) for path in list_checkpoints(run.checkpoints_path)}
    newest = next((path for path, fault in faults_of.items() if fault is None), None)
    advice = (
        f"Resume or branch from {newest.name}, the newest whole checkpoint." if newest else "No checkpoint is whole."
    )
    damaged = [(fault, _remedy_of_description(fault)) for fault in describe_run(run).faults]
    unreadable = {str(path.relative_to(run.path)): why for path, why in unreadable_below(run.path).items()}
    damaged += [(Fault(FaultKind.UNREADABLE, name, details=why), _REMEDY_OF_RIGHTS) for name, why in unreadable.items()]
    # A live run removes old checkpoints.
    damaged += [(fault, advice) for path, fault in faults_of.items() if fault is not None and path.exists()]
    checks: dict[str, Callable[[], Found]] = {
        "attempts": lambda: [(fault, _REMEDY_OF_LOST) for fault in find_lost_attempts(run)] + _damaged_ends(run),
        "events": lambda: _damaged_events(run, advice),
        "evaluation": lambda: [
            *_lost_answers(run),
            *((fault, _REMEDY_OF_ANSWERS) for fault in find_answer_damage(run.path)),
        ],
        "checkpoints": lambda: [
            *((fault, f"{_REMEDY_OF_LOST} {advice}") for fault in [find_lost_checkpoint(run)] if fault is not None),
            *(_damaged_buffer(run, Checkpoint(0, newest)) if newest else []),
        ],
    }
    for word, check in checks.items():
        try:
            damaged += check()
        except Exception as error:  # noqa: BLE001 - whatever the files of a run hold, the others are checked too
            fault = Fault(FaultKind.UNREADABLE, word, details=f"{type(error).__name__}: {error}")
            damaged.append((fault, "Other files are checked."))
    return [Damage(run.run_id, fault, remedy) for fault, remedy in damaged]


def _remedy_of_description(fault: Fault) -> str:
    if fault.file == "run.json":
        return "The specification and all records are kept; only name, parent and time of creation are lost."
    return (
        "All records are kept; copy spec.json from a backup, or from a run with the same name and settings, to resume."
    )


def _damaged_buffer(run: RunDirectory, newest: Checkpoint) -> Found:
    """Return each damage of the trajectories in the replay buffer of the newest whole checkpoint."""
    snapshot = newest.experience / BUFFER_FILE
    if not snapshot.exists():
        return []
    why = []
    try:
        with closing(ReplayBuffer.restore(run.buffer_path, snapshot)) as buffer:
            num_rows = len(buffer.stored_rows())
            for first in range(0, num_rows, _ROWS_AT_ONCE):
                try:
                    buffer.experiences(np.arange(first, min(first + _ROWS_AT_ONCE, num_rows)))
                except BufferCorruptionError as error:
                    why.append(str(error))
    except (BufferCorruptionError, ValueError) as error:
        why = [str(error)]
    details = [sentence.replace(f"{run.path}/", "") for sentence in why]
    return [(Fault(FaultKind.LOST_EXPERIENCE, BUFFER_FOLDER, details=text), _REMEDY_OF_BUFFER) for text in details]


def _lost_answers(run: RunDirectory) -> Found:
    names = dict.fromkeys(str(event.get("benchmark")) for event in iterate_events(run, "benchmark"))
    lost = [f"{FOLDER}/{name}-*.jsonl" for name in names if not list_files(run.path / FOLDER, name)]
    return [(Fault(FaultKind.MISSING, name), _REMEDY_OF_LOST) for name in lost]


def _damaged_ends(run: RunDirectory) -> Found:
    """Return damaged outcomes, and missing ones of attempts without a process whose events say that they ended."""
    ends = {attempt: read_outcome(run.attempt_path(attempt)) for attempt in run.attempts()}
    remedy = "Steps and scores are kept; the last event of the attempt says how it ended."
    damaged = [(end.fault, remedy) for end in ends.values() if end is not None and end.fault is not None]
    without = [attempt for attempt, end in ends.items() if end is None]
    last = {event["attempt"]: event.get("status") for event in iterate_events(run, "status")} if without else {}
    remedy = "Steps and scores are kept; if the run counts as lost now, copy the file from a backup or resume the run."
    for attempt in without:
        path, status = run.attempt_path(attempt), last.get(attempt)
        if status not in list(ENDED) or has_process(path, read_heartbeat(path)):
            continue
        # A worker that has ended since may have written it.
        if read_outcome(path) is None:
            file = f"attempts/{attempt:04d}/{OUTCOME_FILE}"
            damaged.append((Fault(FaultKind.NO_END, file, details=str(status)), remedy))
    return damaged


def _damaged_events(run: RunDirectory, advice: str) -> Found:
    reader, position, has_more, faults = EventReader(run), None, True, list[Fault]()
    # Read before the events: a live run may record more events and end while they are read.
    ends = {attempt: read_outcome(run.attempt_path(attempt)) for attempt in run.attempts()}
    while has_more:
        batch = reader.read(position, _MAX_STEPS)
        position, has_more = batch.position, batch.has_more
        faults += batch.faults
    for attempt, end in ends.items():
        missing = find_missing_events(attempt, end, position)
        faults += [missing] if missing else []
    return [(fault, _remedy_of_events(fault, advice)) for fault in dict.fromkeys(faults)]


def _remedy_of_events(fault: Fault, advice: str) -> str:
    if fault.kind is FaultKind.NOT_RECORDED:
        return "This is no damage: the file is whole."
    if fault.file.endswith(".parquet"):
        return "Metrics, scores and the other files are kept; texts and tokens of this file are lost."
    return f"Pages leave out what it recorded. All other events are kept. {advice}"
