"""What users do to runs: every command writes files, in the run's folder and in the journal, never the database."""

import re
import shutil
from datetime import UTC, datetime
from pathlib import Path

from db.rows.spec_fields import is_adopted
from exgrpo_core.experience_management.storage.append_file import BufferCorruptionError
from jobs.evaluation.model_folder import MODEL_FOLDER, link_model
from jobs.preflight.local_sources import with_absolute_benchmarks, with_model_source
from jobs.preflight.resolution import resolve
from jobs.recording.log_damage import find_experience_damage
from jobs.runs.branching import link_checkpoint
from jobs.runs.checkpoint_names import NamedCheckpoint
from jobs.runs.checkpoints import checkpoint_path, find_fault, list_steps
from jobs.runs.directory import RunDirectory, RunDirectoryError, make_run_id
from jobs.runs.journal import Journal, JournalKind
from jobs.runs.lookup import CommandError, open_run, run_names, state_of
from jobs.runs.resume_point import describe_resume
from jobs.runs.status import RESUMABLE
from jobs.specs.any_job import JobSpec
from jobs.specs.evaluation import EvalSpec
from jobs.specs.train import MAX_NAME_CHARACTERS, NAME_PATTERN, SpecError, TrainSpec

MAX_NOTE_CHARACTERS = 20_000
MAX_TAG_CHARACTERS = 40
MAX_PARENT_NAME = 60
_COPY_ENDING = re.compile(r" copy( \d+)?$")


def submit(runs_root: Path, spec: JobSpec, *, parent_run_id: str | None = None) -> str:
    """Write a new run directory, queue the job, of whatever kind, and return its id; `parent_run_id` is copied from.

    A training run's `model.source: RUN@STEP` is copied into the new run, which then does not need the checkpoint.

    Raises:
        SpecError: An evaluation names a local file that does not exist.
        CommandError: The runs root cannot be written, or a training run cannot run as it is specified.
    """
    start = None
    if isinstance(spec, TrainSpec):
        preflight = resolve(spec, runs_root)
        preflight.raise_refusals(ignores_disk_space=True)
        spec, start = preflight.spec, preflight.start
    elif isinstance(spec, EvalSpec):
        spec = with_absolute_benchmarks(spec)
    try:
        runs_root.mkdir(parents=True, exist_ok=True)
        run = _create_run(runs_root, spec, start, parent_run_id)
        _queue(run, spec.tags)
    except OSError as error:
        raise CommandError(f"{runs_root}: cannot be written ({error.strerror}); choose another runs root.") from None
    return run.run_id


def _queue(run: RunDirectory, tags: tuple[str, ...]) -> None:
    """Queue a new run's first attempt; if the journal cannot be written, remove the run again."""
    journal = Journal(run.path.parent)
    try:
        for name in tags:
            journal.append(JournalKind.TAGGED, run.run_id, tag=name)
        journal.append(JournalKind.SUBMITTED, run.run_id, attempt=1)
    except OSError:
        shutil.rmtree(run.path, ignore_errors=True)
        raise


def _create_run(runs_root: Path, spec: JobSpec, start: NamedCheckpoint | None, parent: str | None) -> RunDirectory:
    """Write a run's folder, with the model that it starts from if that is a checkpoint's."""
    if start is None or not isinstance(spec, TrainSpec):
        return RunDirectory.create(runs_root, spec, parent_run_id=parent)
    run_id = make_run_id(datetime.now(UTC))
    folder = runs_root.resolve() / run_id / MODEL_FOLDER / start.run_id / start.policy.parent.name
    spec = with_model_source(spec, str(folder))
    run = RunDirectory.create(runs_root, spec, run_id=run_id, parent_run_id=start.run_id)
    try:
        link_model(start.policy, folder)
    except OSError:
        shutil.rmtree(run.path, ignore_errors=True)
        raise
    return run


def stop(runs_root: Path, run_id: str) -> None:
    """Ask a run to stop at its next step boundary, with a checkpoint; a queued one does not start.

    verl's SFT trainer ends at once and writes none: a resume continues from its newest checkpoint.

    Raises:
        CommandError: No such run, or it has ended.
    """
    run = open_run(runs_root, run_id)
    state = state_of(runs_root, run)
    if state.is_ended:
        raise CommandError(f"{run_id} cannot be stopped: already {state.status}.")
    run.request_stop()
    Journal(runs_root).append(JournalKind.STOP_ASKED, run_id)


def resume(runs_root: Path, run_id: str) -> str:
    """Queue a new attempt, which continues from the newest whole checkpoint, or from the start when there is none.

    Returns:
        A sentence on where it continues and which later experience it keeps or drops; nothing for jobs without.

    Raises:
        CommandError: No such run, or its state does not allow it.
    """
    run = open_run(runs_root, run_id)
    state = state_of(runs_root, run)
    if state.status not in RESUMABLE:
        allowed = ", ".join(sorted(RESUMABLE))
        raise CommandError(f"{run_id} cannot be resumed: it is {state.status}; expected one of {allowed}.")
    sentence = f"{describe_resume(run)} {find_experience_damage(run)}".strip()
    run.clear_stop()
    Journal(runs_root).append(JournalKind.RESUME_ASKED, run_id, attempt=state.attempt + 1)
    return sentence


def clone(runs_root: Path, run_id: str) -> TrainSpec:
    """Return the specification of a training run, to start another from.

    Raises:
        CommandError: No such run, it is no training run or an adopted one, or its specification cannot be read.
    """
    try:
        spec = open_run(runs_root, run_id).spec()
    except SpecError as error:
        raise CommandError(str(error)) from None
    if is_adopted(spec.model_dump(mode="json")):
        raise CommandError(
            f"{run_id} was adopted from rollout dumps, so its settings are unknown; start from a preset."
        )
    return spec


def name_of_copy(runs_root: Path, name: str) -> str:
    """Return a name for a copy of a job that no job has: `NAME copy`, then `NAME copy 2` and so on."""
    names = set(run_names(runs_root).values())
    stem = f"{_COPY_ENDING.sub('', name)[:MAX_PARENT_NAME].rstrip()} copy"
    return next(
        copy for copy in (stem, *(f"{stem} {number}" for number in range(2, len(names) + 3))) if copy not in names
    )


def branch(runs_root: Path, run_id: str, step: int, num_steps: int | None = None) -> str:
    """Queue a new run that continues from a checkpoint of another and return its id; both share files by hard links.

    It ends at the parent's last step, or at `num_steps`.

    Raises:
        CommandError: No such run, no whole checkpoint at this step, or no step left.
    """
    parent = open_run(runs_root, run_id)
    spec = clone(runs_root, run_id)
    last_step = spec.num_steps if num_steps is None else num_steps
    if step >= last_step:
        raise CommandError(
            f"num_steps: expected more than {step}, the step to branch at, got {last_step}; give a larger number."
        )
    name = f"{spec.name[:MAX_PARENT_NAME]} from step {step}"
    spec = spec.model_copy(update={"num_steps": last_step, "name": name})
    checkpoint = checkpoint_path(parent.checkpoints_path, step)
    if not checkpoint.is_dir():
        steps = ", ".join(map(str, list_steps(checkpoint.parent)))
        raise CommandError(f"{run_id} has no checkpoint at step {step}; there are: {steps or 'none'}.")
    fault = find_fault(checkpoint)
    if fault is not None:
        raise CommandError(f"{run_id} cannot be branched at step {step}: {fault}; choose another step.")
    run = RunDirectory.create(runs_root, spec, parent_run_id=parent.run_id, branched_from_step=step)
    try:
        link_checkpoint(parent, run, step)
    except (OSError, BufferCorruptionError, RunDirectoryError) as error:
        shutil.rmtree(run.path, ignore_errors=True)
        raise CommandError(f"{run_id} cannot be branched at step {step}: {error}.") from None
    Journal(runs_root).append(JournalKind.SUBMITTED, run.run_id, attempt=1)
    return run.run_id


def tag(runs_root: Path, run_id: str, name: str, is_set: bool = True) -> None:
    """Add a tag to a run, or remove it.

    Raises:
        CommandError: No such run, or no usable tag.
    """
    run = open_run(runs_root, run_id)
    name = name.strip()
    if not name or len(name) > MAX_TAG_CHARACTERS or not name.isprintable():
        raise CommandError(f"tag: expected 1 to {MAX_TAG_CHARACTERS} printable characters, got {name[:60]!r}.")
    Journal(runs_root).append(JournalKind.TAGGED if is_set else JournalKind.UNTAGGED, run.run_id, tag=name)


def rename(runs_root: Path, run_id: str, name: str) -> None:
    """Give a run another name; its folder and id stay.

    Raises:
        CommandError: No such run, or no usable name.
    """
    run = open_run(runs_root, run_id)
    name = name.strip()
    if NAME_PATTERN.fullmatch(name) is None:
        raise CommandError(
            f"name: expected letters, digits, spaces and . _ + @ -, at most {MAX_NAME_CHARACTERS}, a letter or digit "
            f"first, got {name[:90]!r}."
        )
    Journal(runs_root).append(JournalKind.RENAMED, run.run_id, name=name)


def note(runs_root: Path, run_id: str, text: str) -> None:
    """Add a note to a run.

    Raises:
        CommandError: No such run, or too long a note.
    """
    run = open_run(runs_root, run_id)
    if len(text) > MAX_NOTE_CHARACTERS:
        raise CommandError(f"note: expected at most {MAX_NOTE_CHARACTERS} characters, got {len(text)}.")
    Journal(runs_root).append(JournalKind.NOTED, run.run_id, text=text)


def archive(runs_root: Path, run_id: str, is_archived: bool = True) -> None:
    """Hide a run from the list, or show it again; its files do not change.

    Raises:
        CommandError: No such run, or it has not ended.
    """
    run = open_run(runs_root, run_id)
    state = state_of(runs_root, run)
    if is_archived and not state.is_ended:
        raise CommandError(f"{run_id} cannot be archived: it is {state.status}; stop it first.")
    Journal(runs_root).append(JournalKind.ARCHIVED if is_archived else JournalKind.UNARCHIVED, run.run_id)
