"""What users do to runs: every command writes files, in the run's folder and in the journal, never the database."""

import re
from pathlib import Path

from exgrpo.jobs.runs.attempts import read_outcome
from exgrpo.jobs.runs.checkpoints import describe_resume
from exgrpo.jobs.runs.directory import CommandError, RunDirectory
from exgrpo.jobs.runs.journal import Journal, JournalKind, request_resume, waited_for
from exgrpo.jobs.runs.lookup import run_names
from exgrpo.jobs.runs.people import Role, needs
from exgrpo.jobs.runs.recording.event_reader import refusal_of_new_start
from exgrpo.jobs.runs.state import RunState, describe_run, is_recorded, read_state, refuse_code
from exgrpo.jobs.specs.any_job import JobSpec
from exgrpo.jobs.specs.judging import JudgeSpec
from exgrpo.jobs.specs.train import SpecError, TrainSpec, clean_name
from exgrpo_core.errors import Mistake
from exgrpo_core.recording.run_status import BROKEN, RunStatus

MAX_NOTE_CHARACTERS = 20_000
MAX_TAG_CHARACTERS = 40
MAX_PARENT_NAME = 60
DEMO_TAG = "demo"
"""The tag of runs that `exgrpo demo` started. It is in the journal, not in the specification, so no copy has it."""
STUDY_TAG = re.compile(r"(study|scale|cell|seed):(.+)")
"""The four tags that say which run of a study a run is."""
_COPY_ENDING = re.compile(r" copy( \d+)?$")


@needs(Role.OPERATOR)
def stop(runs_root: Path, run_id: str) -> None:
    """Ask a run to stop at its next step boundary, with a checkpoint; a queued one does not start.

    A run that a shutdown interrupted does not continue.

    Raises:
        CommandError: No such run, or it has ended.
    """
    run = RunDirectory.open(runs_root, run_id)
    state = read_state(run)
    _refuse_recorded(run, state)
    if not state.is_ended:
        run.request_stop()
    elif state.status is not RunStatus.STOPPED or not run.keep_stopped():
        raise CommandError(f"{run_id} cannot be stopped: already {state.status}.")
    Journal(runs_root).append(JournalKind.STOP_ASKED, run_id)


@needs(Role.OPERATOR)
def resume(runs_root: Path, run_id: str) -> str:
    """Queue a new attempt, which continues from the newest whole checkpoint, or from the start when there is none.

    Returns:
        A sentence on the step that it continues from; nothing if it has no checkpoint.

    Raises:
        CommandError: No such run, its state does not allow it, or all its checkpoints were lost.
        FieldError: It has code that the running workbench cannot load.
    """
    run = RunDirectory.open(runs_root, run_id)
    state = read_state(run)
    _refuse_recorded(run, state)
    if state.status not in BROKEN:
        allowed = ", ".join(sorted(BROKEN))
        more = " `exgrpo branch` trains on from a checkpoint, `exgrpo clone` starts again." if state.is_ended else ""
        raise CommandError(f"{run_id} cannot be resumed: it is {state.status}; expected one of {allowed}.{more}")
    if why := refusal_of_new_start(run):
        raise CommandError(why)
    refuse_code(runs_root, describe_run(run).spec)
    request_resume(run, state.attempt + 1)
    return describe_resume(run)


def _refuse_recorded(run: RunDirectory, state: RunState) -> None:
    if state.attempt and is_recorded(run.attempt_path(state.attempt)):
        raise CommandError(f"{run.run_id} is recorded by another program; start or stop it there.")


def read_job_spec(runs_root: Path, run_id: str) -> JobSpec:
    """Return the specification of a job of any kind, to start another from, which is no run of a study.

    Raises:
        CommandError: No such job, or its specification cannot be read.
    """
    try:
        run = RunDirectory.open(runs_root, run_id)
        spec = run.job_spec()
    except SpecError as error:
        raise CommandError(str(error)) from None
    waits = {} if isinstance(spec, JudgeSpec) else {"waits_for": waited_for(run)}
    return spec.model_copy(update={"tags": without_place(spec.tags), **waits})


def without_place(tags: tuple[str, ...]) -> tuple[str, ...]:
    """Return the tags without those that say which run of a study a run is, since a copy is none."""
    of_studies = {tag: match[1] for tag in tags if (match := STUDY_TAG.fullmatch(tag))}
    is_of_study = {*of_studies.values()} == {"study", "scale", "cell", "seed"}
    return tuple(tag for tag in tags if not is_of_study or tag not in of_studies)


def clone(runs_root: Path, run_id: str) -> TrainSpec:
    """Return the specification of a training run, to start another from.

    Raises:
        CommandError: No such run, it is no training run, or its specification cannot be read.
    """
    spec = read_job_spec(runs_root, run_id)
    if not isinstance(spec, TrainSpec):
        raise CommandError(f"{run_id}: expected a training run, this is a job of kind {spec.kind}.")
    return spec


@needs(Role.VIEWER)
def spec_of_copy(runs_root: Path, run_id: str) -> TrainSpec:
    """Return the specification of a training run under a name that no run has.

    Raises:
        CommandError: As in `clone`.
    """
    spec = clone(runs_root, run_id)
    return spec.model_copy(update={"name": name_of_copy(runs_root, spec.name)})


@needs(Role.VIEWER)
def find_failure(runs_root: Path, run_id: str) -> list[Mistake]:
    """Return why a run failed, with the fields to change if its end names some; nothing of others.

    Raises:
        CommandError: There is no such run.
    """
    run = RunDirectory.open(runs_root, run_id)
    end = read_outcome(run.attempt_path(run.newest_attempt()))
    if end is None or end.status is not RunStatus.FAILED:
        return []
    return [Mistake(end.reason.removeprefix(f"{', '.join(end.fields)}: "), *end.fields)]


def name_of_copy(runs_root: Path, name: str) -> str:
    """Return a name for a copy of a job that no job has: `NAME copy`, then `NAME copy 2` and so on."""
    names = set(run_names(runs_root).values())
    stem = f"{_COPY_ENDING.sub('', name)[:MAX_PARENT_NAME].rstrip()} copy"
    return next(
        copy for copy in (stem, *(f"{stem} {number}" for number in range(2, len(names) + 3))) if copy not in names
    )


@needs(Role.OPERATOR)
def tag(runs_root: Path, run_id: str, name: str, is_set: bool = True) -> None:
    """Add a tag to a run, or remove it.

    Raises:
        CommandError: No such run, or no usable tag.
    """
    run = RunDirectory.open(runs_root, run_id)
    name = name.strip()
    if not name or len(name) > MAX_TAG_CHARACTERS or not name.isprintable():
        raise CommandError(f"tag: expected 1 to {MAX_TAG_CHARACTERS} printable characters, got {name[:60]!r}.")
    Journal(runs_root).append(JournalKind.TAGGED if is_set else JournalKind.UNTAGGED, run.run_id, tag=name)


@needs(Role.OPERATOR)
def rename(runs_root: Path, run_id: str, name: str) -> None:
    """Give a run another name; its folder and id stay.

    Raises:
        CommandError: No such run, or no usable name.
    """
    run = RunDirectory.open(runs_root, run_id)
    try:
        name = clean_name(name.strip())
    except ValueError as error:
        raise CommandError(f"name: {error}, got {name[:90]!r}.") from None
    Journal(runs_root).append(JournalKind.RENAMED, run.run_id, name=name)


@needs(Role.OPERATOR)
def note(runs_root: Path, run_id: str, text: str) -> None:
    """Add a note to a run.

    Raises:
        CommandError: No such run, or too long a note.
    """
    run = RunDirectory.open(runs_root, run_id)
    if len(text) > MAX_NOTE_CHARACTERS:
        raise CommandError(f"note: expected at most {MAX_NOTE_CHARACTERS} characters, got {len(text)}.")
    Journal(runs_root).append(JournalKind.NOTED, run.run_id, text=text)


@needs(Role.ADMIN)
def archive(runs_root: Path, run_id: str, is_archived: bool = True) -> None:
    """Hide a run from the list, or show it again; its files do not change.

    Raises:
        CommandError: No such run, or it has not ended.
    """
    run = RunDirectory.open(runs_root, run_id)
    state = read_state(run)
    if is_archived and not state.is_ended:
        raise CommandError(f"{run_id} cannot be archived: it is {state.status}; stop it first.")
    if is_archived:
        run.keep_stopped()
    Journal(runs_root).append(JournalKind.ARCHIVED if is_archived else JournalKind.UNARCHIVED, run.run_id)
