"""Checking every file of runs against its checksum, and saying what can be recovered."""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from exgrpo_core.bounded_json import UnreadableFileError
from exgrpo_core.experience_management.replay_buffer import BufferCorruptionError, ReplayBuffer
from exgrpo_core.faults import Fault, FaultKind, describe_fault
from exgrpo_core.state import BUFFER_FILE
from jobs.contamination.report import read_reports
from jobs.evaluation.recorded_answers import FOLDER, find_answer_damage
from jobs.recording.event_reader import EventReader, iterate_events, last_number
from jobs.recording.log_damage import find_damaged_logs, find_experience_damage
from jobs.recording.lost_steps import LostSteps
from jobs.runs.attempts import OUTCOME_FILE, read_heartbeat, read_outcome
from jobs.runs.checkpoints import Checkpoint, checkpoint_path, find_fault, list_checkpoints
from jobs.runs.description import describe_run
from jobs.runs.directory import RUN_ID, RunDirectory, list_run_directories
from jobs.runs.drafts import list_drafts, load_draft
from jobs.runs.journal import Journal
from jobs.runs.named_entries import RAY_CLUSTERS, SAVED_VIEWS
from jobs.runs.plan import read_plan
from jobs.runs.resume_point import newest_snapshot
from jobs.runs.state import has_process
from jobs.runs.status import ENDED
from jobs.specs.train import SpecError

_MAX_STEPS = 16
_ROWS_AT_ONCE = 1024
_REMEDY_OF_BUFFER = "Other trajectories are whole; a run that replays this one fails, so copy the file from a backup."
_REMEDY_OF_ANSWERS = (
    "Scores and other answers are kept; a resume asks lost questions again, else score the model again."
)


@dataclass(frozen=True, slots=True)
class Damage:
    """What is damaged, a sentence that begins with the file, and what can be recovered of it; `run_id` "" of no run."""

    run_id: str
    what: str
    remedy: str


def verify_root(runs_root: Path) -> list[Damage]:
    """Return all damage of a runs root: its workbench folder and every run."""
    remedy = "Entries before and after are whole; tags, notes and requests of those named must be made again."
    damaged = [(fault, remedy) for fault in Journal(runs_root).find_damage()]
    damaged += [(fault, "Run `exgrpo eval --contamination` again.") for fault in read_reports(runs_root)[1]]
    kept = [fault for entries in (SAVED_VIEWS, RAY_CLUSTERS) if (fault := entries.find_fault(runs_root))]
    damaged += [(fault, "Nothing else depends on it.") for fault in [*kept, *_damaged_drafts(runs_root)]]
    of_workbench = [Damage("", what, remedy) for what, remedy in damaged] + _folders_without_info(runs_root)
    return of_workbench + [damage for run in list_run_directories(runs_root) for damage in verify_run(run)]


def _folders_without_info(runs_root: Path) -> list[Damage]:
    """Return the folders that are no runs only because they lack `run.json`."""
    names = sorted(path.parent.name for path in runs_root.glob("*/spec.json") if RUN_ID.fullmatch(path.parent.name))
    what = "run.json: is missing, so the folder is not shown as a run."
    remedy = "All else is kept; copy run.json from a backup, or from another run to see it under that run's name."
    return [Damage(name, what, remedy) for name in names if not (runs_root / name / "run.json").exists()]


def _damaged_drafts(runs_root: Path) -> list[str]:
    faults = []
    for name in list_drafts(runs_root):
        try:
            load_draft(runs_root, name)
        except SpecError as error:
            faults.append(str(error))
    return faults


def verify_run(run: RunDirectory) -> list[Damage]:
    """Return all damage of a run: its description, ends, events, answers, checkpoints and replay buffer."""
    damaged = [(describe_fault(fault), _remedy_of_description(fault)) for fault in describe_run(run).faults]
    for word, check in _CHECKS.items():
        try:
            damaged += check(run)
        except Exception as error:  # noqa: BLE001 - whatever the files of a run hold, the others are checked too
            damaged.append((f"{word}: cannot be read ({type(error).__name__}: {error}).", "Other files are checked."))
    return [Damage(run.run_id, what, remedy) for what, remedy in damaged]


def _damaged_answers(run: RunDirectory) -> list[tuple[str, str]]:
    return [(fault, _REMEDY_OF_ANSWERS) for fault in find_answer_damage(run.path)]


def _damaged_checkpoints(run: RunDirectory) -> list[tuple[str, str]]:
    checkpoints = {path: find_fault(path) for path in list_checkpoints(run.checkpoints_path)}
    damaged = [
        (f"{Path(fault.split(' ')[0]).relative_to(run.path)} {fault.partition(' ')[2]}.", _remedy_by_checkpoint(run))
        for path, fault in checkpoints.items()
        # A live run removes old checkpoints.
        if fault is not None and path.exists()
    ]
    newest = next((Checkpoint(0, path) for path, fault in checkpoints.items() if fault is None), None)
    damaged += [(fault, _REMEDY_OF_BUFFER) for fault in (_damaged_buffer(run, newest) if newest else [])]
    return damaged


def _damaged_logs(run: RunDirectory) -> list[tuple[str, str]]:
    lost, faults = find_experience_damage(run), [f"buffer/{fault}" for fault in find_damaged_logs(run)]
    if not lost and not faults:
        return []
    newest, remedy = _newest_whole(run), _remedy_of_log(run)
    if newest is not None and not lost and _has_spec(run):
        resumed = checkpoint_path(run.checkpoints_path, newest_snapshot(run)[0])
        if newest == resumed:
            remedy = f"Nothing is lost to a resume from {newest.name}, the newest whole checkpoint."
    if faults and lost.startswith("buffer: its log"):
        what = lost.removeprefix("buffer: its log ").removeprefix("is damaged and ")
        remedy, lost = f"It {what} {remedy}", ""
    return [(fault, remedy) for fault in [*faults, lost] if fault]


def _has_spec(run: RunDirectory) -> bool:
    try:
        run.job_spec()
    except SpecError:
        return False
    return True


def _remedy_of_description(fault: Fault) -> str:
    if fault.file == "run.json":
        return "The specification and all records are kept; only name, parent and time of creation are lost."
    return (
        "All records are kept; copy spec.json from a backup, or from a run with the same name and settings, to resume."
    )


def _damaged_plans(run: RunDirectory) -> list[tuple[str, str]]:
    remedy = "Displays of progress alone depend on it; a resume writes it again."
    faults = []
    for folder in (run.path / FOLDER, *map(run.attempt_path, run.attempts())):
        try:
            read_plan(folder)
        except FileNotFoundError:
            continue
        except (OSError, UnreadableFileError) as error:
            faults.append((str(error), remedy))
    return faults


def _damaged_buffer(run: RunDirectory, newest: Checkpoint) -> list[str]:
    """Return a sentence on each damage of the trajectories in the replay buffer of the newest whole checkpoint."""
    snapshot = newest.experience / BUFFER_FILE
    if not snapshot.exists():
        return []
    try:
        with closing(ReplayBuffer.restore(run.buffer_path, snapshot)) as buffer:
            faults, num_rows = [], len(buffer.stored_rows())
            for first in range(0, num_rows, _ROWS_AT_ONCE):
                try:
                    buffer.experiences(np.arange(first, min(first + _ROWS_AT_ONCE, num_rows)))
                except BufferCorruptionError as error:
                    faults.append(str(error))
    except (BufferCorruptionError, ValueError) as error:
        faults = [str(error)]
    return [f"{fault.removeprefix(f'{run.path}/').partition(';')[0]}." for fault in faults]


def _damaged_ends(run: RunDirectory) -> list[tuple[str, str]]:
    damaged = []
    for attempt in run.attempts():
        outcome = read_outcome(run.attempt_path(attempt))
        if outcome is not None and not outcome.is_readable:
            remedy = "Steps and scores are kept; the last event of the attempt says how it ended."
            damaged.append((f"attempts/{attempt:04d}/{outcome.reason}", remedy))
    return damaged + _missing_ends(run)


def _missing_ends(run: RunDirectory) -> list[tuple[str, str]]:
    """Return the attempts whose events say that they ended, but that have no outcome and no process to write it."""
    without = [attempt for attempt in run.attempts() if read_outcome(run.attempt_path(attempt)) is None]
    last = {event["attempt"]: event.get("status") for event in iterate_events(run, "status")} if without else {}
    remedy = "Steps and scores are kept; if the run counts as lost now, copy the file from a backup or resume the run."
    damaged = []
    for attempt in without:
        path, status = run.attempt_path(attempt), last.get(attempt)
        if status not in list(ENDED) or has_process(path, read_heartbeat(path)):
            continue
        # A worker that has ended since may have written it.
        if read_outcome(path) is None:
            what = f"attempts/{attempt:04d}/{OUTCOME_FILE}: is missing; the last event says {status}."
            damaged.append((what, remedy))
    return damaged


def _damaged_events(run: RunDirectory) -> list[tuple[str, str]]:
    reader, position, has_more, faults = EventReader(run), None, True, list[Fault]()
    lost_steps = LostSteps()
    # Read before the events: a live run may record more events and end while they are read.
    outcomes = {attempt: read_outcome(run.attempt_path(attempt)) for attempt in run.attempts()}
    while has_more:
        batch = reader.read(position, _MAX_STEPS)
        position, has_more = batch.position, batch.has_more
        faults += batch.faults
        lost_steps.observe(batch.events)
    for attempt, outcome in outcomes.items():
        last = last_number(position or "{}", attempt)
        if outcome is not None and outcome.num_events is not None and last < outcome.num_events:
            faults.append(Fault(FaultKind.MISSING_EVENTS, f"attempts/{attempt:04d}", (last + 1, outcome.num_events)))
    return [(describe_fault(fault), _remedy_of_events(fault, run, lost_steps)) for fault in dict.fromkeys(faults)]


def _remedy_of_events(fault: Fault, run: RunDirectory, lost_steps: LostSteps) -> str:
    if fault.file.endswith(".parquet"):
        return "Metrics, scores and the other files are kept; texts and tokens of this file are lost."
    damaged = [attempt for attempt in run.attempts() if fault.file.startswith(f"attempts/{attempt:04d}")]
    lost = "".join(map(lost_steps.describe, damaged))
    left_out = f"Pages leave out the metrics and trajectories of {lost}. " if lost else ""
    return f"{left_out}All other events are kept. {_remedy_by_checkpoint(run)}"


def _remedy_of_log(run: RunDirectory) -> str:
    return f"Texts and metrics are kept; a resume lacks the experience of lost steps. {_remedy_by_checkpoint(run)}"


def _remedy_by_checkpoint(run: RunDirectory) -> str:
    newest = _newest_whole(run)
    return f"Resume or branch from {newest.name}, the newest whole checkpoint." if newest else "No checkpoint is whole."


def _newest_whole(run: RunDirectory) -> Path | None:
    return next((path for path in list_checkpoints(run.checkpoints_path) if find_fault(path) is None), None)


_CHECKS = {
    "attempts": _damaged_ends,
    "events": _damaged_events,
    "answers": _damaged_answers,
    "plans": _damaged_plans,
    "checkpoints": _damaged_checkpoints,
    "buffer": _damaged_logs,
}
