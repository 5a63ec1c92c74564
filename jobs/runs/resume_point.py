"""Where a resume of a training run begins, and what it does with the experience of the steps after that, in words."""

from collections.abc import Mapping, Sequence
from typing import Any

from exgrpo_core.experience_management.storage.append_file import BufferCorruptionError
from exgrpo_core.experience_management.storage.snapshot import read_snapshot
from exgrpo_core.experience_management.storage.step_log import LoggedStep, LogPosition, steps_after
from exgrpo_core.state import BUFFER_FILE
from jobs.runs.checkpoints import Checkpoint, checkpoint_path, list_steps
from jobs.runs.directory import RunDirectory
from jobs.specs.train import SpecError, TrainSpec


def describe_resume(run: RunDirectory) -> str:
    """Return in one sentence from which step a training run will continue and what is kept or dropped; else nothing.

    A checkpoint whose weights turn out to be damaged is passed over later, as the run's log says.
    """
    try:
        spec = run.job_spec()
    except SpecError:
        return ""
    if not isinstance(spec, TrainSpec) or spec.sft is not None:
        return ""
    step, header = newest_snapshot(run)
    try:
        later = later_steps(run, header)
        if not later:
            return f"Resumes from step {step}; no experience is newer." if step else ""
        return f"Resumes from step {step}: {describe_later(later, spec.resume.experience == 'newest')}"
    # Whatever an imported log holds, the run itself says what is wrong with it.
    except (OSError, ValueError, TypeError, LookupError):
        return f"Resumes from step {step}; the log of its replay buffer cannot be read."


def describe_later(steps: Sequence[LoggedStep], are_kept: bool) -> str:
    """Return how many trajectories were collected in the steps after a checkpoint, and whether they are kept."""
    first, last = (steps[i].header["step"] for i in (0, -1))
    num_collected = sum(later.header["num_collected"] for later in steps)
    what = "kept (resume.experience: newest)" if are_kept else "dropped (resume.experience: as_of_checkpoint)"
    return f"{num_collected:,} trajectories that were collected in steps {first} to {last} are {what}."


def newest_snapshot(run: RunDirectory) -> tuple[int, Mapping[str, Any]]:
    """Return the step of the newest checkpoint whose buffer can be read, and the header of its snapshot."""
    for step in reversed(list_steps(run.checkpoints_path)):
        checkpoint = Checkpoint(step, checkpoint_path(run.checkpoints_path, step))
        try:
            return step, read_snapshot(checkpoint.experience / BUFFER_FILE)[0]
        except BufferCorruptionError:
            continue
    return 0, {"logged": None}


def later_steps(run: RunDirectory, header: Mapping[str, Any]) -> list[LoggedStep]:
    """Return the steps after a snapshot, by the log of the buffer; none of older versions, which kept no log."""
    if "logged" not in header or not run.buffer_path.is_dir():
        return []
    return steps_after(run.buffer_path, LogPosition(*header["logged"]) if header["logged"] else None)
