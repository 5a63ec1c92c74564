"""The only way from a page to `jobs`: commands on runs, and reads of files, forms and the machine.

Beside it: `scoring` for evaluations and their answers, `elsewhere` for other machines.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from app import settings
from app.access import current_person
from app.roles import Role
from db.rows.cases import SavedCase
from db.rows.marks import MarkedTrajectory
from exgrpo_core.errors import UserError
from jobs.actions import annotations, judgements, progress, run_actions, run_bin
from jobs.actions.probe_process import ProbeProcess
from jobs.actions.token_texts import token_texts
from jobs.contamination.report import ContaminationReport, read_reports
from jobs.machine import machine_report
from jobs.machine.gpus import Gpu, list_gpus
from jobs.machine.machine_report import Finding, Machine, package_versions, read_machine
from jobs.playground.process import ask_models
from jobs.preflight import data_preview
from jobs.preflight.data_preview import DataPreview
from jobs.preflight.resolution import Preflight, RunRefusedError, resolve
from jobs.preflight.resource_estimate import ResourceEstimate, estimate_resources
from jobs.recording.trajectory_file import read_token_data
from jobs.runs import drafts, lookup
from jobs.runs.directory import RunDirectory, RunDirectoryError, inside
from jobs.runs.journal import Journal, JournalEntry, acting_as
from jobs.runs.lookup import CommandError
from jobs.runs.named_entries import SAVED_VIEWS
from jobs.runs.status import ENDED, RESUMABLE, RunStatus
from jobs.specs.judging import parse_judge_spec
from jobs.specs.mistakes import fields_of
from jobs.specs.train import SpecError, TrainSpec, load_preset, parse_spec, preset_exists, preset_names
from jobs.specs.verl import RAY_TOKEN_VARIABLE
from jobs.studies.definition import Scale, load_study
from jobs.studies.gpu_hours import estimate_step_seconds
from jobs.studies.running import PendingRun, start, stop_all
from jobs.supervisor.instance import read_supervisor
from jobs.training.data_rows import DataError
from jobs.training.probe_report import ProbeReport

__all__ = [
    "ENDED", "RAY_TOKEN_VARIABLE", "RESUMABLE", "CommandError", "ContaminationReport", "DataError", "DataPreview",
    "Finding", "Gpu", "JournalEntry", "Machine", "ProbeProcess", "ProbeReport", "ResourceEstimate",
    "RunRefusedError", "RunStatus", "SpecError", "TrainSpec", "UserError", "archive", "branch", "chat", "check",
    "clone", "contamination_reports", "delete", "delete_draft", "delete_view", "describe_stop", "empty_bin",
    "estimate_resources", "estimate_step_seconds", "examine_machine", "fields_of", "find_view_fault",
    "job_progress", "journal_entries", "list_deleted", "list_drafts", "list_gpus", "list_views", "load_draft",
    "load_preset", "mark_case", "mark_trajectory", "needs", "note", "package_versions", "preset_exists",
    "preset_names", "preview_data", "read_machine", "rename", "restore", "resume", "save_draft", "save_view",
    "set_verdict", "start_probe", "start_study_run", "status_by_files", "stop", "stop_study", "submit",
    "submit_judge", "tag", "token_data",
]  # fmt: skip

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class RefusedError(CommandError, SpecError, DataError):
    """The user has no role that allows the command."""


def _runs_root() -> Path:
    return settings.current().runs_root


def needs(role: Role) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Return a decorator: the command refuses users below a role, and the journal records who asked for it."""

    def checked(command: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        @wraps(command)
        def run(*arguments: Arguments.args, **words: Arguments.kwargs) -> Result:
            person = current_person()
            if person is None or person.role < role:
                who = "Nobody is signed in" if person is None else f"{person.name} is {person.role.name.lower()}"
                raise RefusedError(
                    f"{who}, but this needs the role {role.name.lower()}; ask the person who runs the server for it."
                )
            with acting_as(person.name):
                return command(*arguments, **words)

        return run

    return checked


@needs(Role.OPERATOR)
def check(content: dict[str, object]) -> Preflight:
    """Return the specification that a form holds, resolved; it can be queued even where the disk may become full.

    Raises:
        SpecError: One sentence per wrong field.
        RunRefusedError: Every field is valid, but the run cannot be queued.
    """
    spec = parse_spec(content, "form")
    preflight = resolve(spec, _runs_root(), is_quick=True)
    preflight.raise_refusals(ignores_disk_space=True)
    return preflight


@needs(Role.OPERATOR)
def submit(spec: TrainSpec, parent_run_id: str | None = None) -> str:
    """Queue a run, a copy of another where `parent_run_id` names that, and return its id."""
    return run_actions.submit(_runs_root(), spec, parent_run_id=parent_run_id)


@needs(Role.OPERATOR)
def stop(run_id: str) -> None:
    """Ask a run to stop at its next step."""
    run_actions.stop(_runs_root(), run_id)


@needs(Role.OPERATOR)
def resume(run_id: str) -> str:
    """Queue a new attempt from the newest complete checkpoint; return a sentence on what experience it keeps."""
    return run_actions.resume(_runs_root(), run_id)


def clone(run_id: str) -> TrainSpec:
    """Return the specification of a run under a name that no run has, to start another from."""
    spec = run_actions.clone(_runs_root(), run_id)
    return spec.model_copy(update={"name": run_actions.name_of_copy(_runs_root(), spec.name)})


@needs(Role.OPERATOR)
def branch(run_id: str, step: int, num_steps: int) -> str:
    """Queue a new run from a checkpoint of another, which trains up to step `num_steps`, and return its id."""
    return run_actions.branch(_runs_root(), run_id, step, num_steps)


@needs(Role.ADMIN)
def archive(run_id: str, is_archived: bool) -> None:
    """Hide a run from the list, or show it again."""
    run_actions.archive(_runs_root(), run_id, is_archived)


@needs(Role.OPERATOR)
def rename(run_id: str, name: str) -> None:
    """Give a run another name."""
    run_actions.rename(_runs_root(), run_id, name)


@needs(Role.ADMIN)
def delete(run_id: str) -> None:
    """Move a run that has ended into the bin."""
    run_bin.delete(_runs_root(), run_id)


@needs(Role.ADMIN)
def restore(run_id: str) -> None:
    """Take a run out of the bin again."""
    run_bin.restore(_runs_root(), run_id)


def list_deleted() -> dict[str, str]:
    """Return the name of each run in the bin by its id."""
    return run_bin.list_deleted(_runs_root())


@needs(Role.ADMIN)
def empty_bin() -> int:
    """Remove everything in the bin for good and return how many runs that were."""
    return run_bin.empty(_runs_root())


@needs(Role.OPERATOR)
def tag(run_id: str, name: str, is_set: bool = True) -> None:
    """Add a tag to a run, or remove it."""
    run_actions.tag(_runs_root(), run_id, name, is_set)


@needs(Role.OPERATOR)
def note(run_id: str, text: str) -> None:
    """Add a note to a run."""
    run_actions.note(_runs_root(), run_id, text)


def job_progress(run_id: str) -> tuple[int, int] | None:
    """Return how many steps, questions or votes are done, and of how many; None before they are counted."""
    try:
        return progress.job_progress(RunDirectory.open(_runs_root(), run_id))
    except RunDirectoryError:
        return None


def status_by_files(run_id: str) -> str:
    """Return a run's state by its files and the journal, which know of a request before the database does."""
    root = _runs_root()
    return lookup.state_of(root, lookup.open_run(root, run_id)).status


def describe_stop(run_id: str) -> str | None:
    """Return what a stopping run waits for and how long that may take; None unless a stop of it was requested."""
    grace = supervisor.stop_grace_seconds if (supervisor := read_supervisor(_runs_root())) else None
    try:
        return progress.describe_stop(RunDirectory.open(_runs_root(), run_id), grace)
    except RunDirectoryError:
        return None


def contamination_reports() -> tuple[list[ContaminationReport], list[str]]:
    """Return the reports on what models have seen of benchmarks, newest first, and a sentence on each damaged one."""
    return read_reports(_runs_root())


@needs(Role.OPERATOR)
def chat(targets: Sequence[str], prompt: str, options: Sequence[str]) -> Generator[dict[str, Any] | None]:
    """Return what models answer, as in `ask_models`; close it to end the process that answers."""
    return ask_models(_runs_root(), targets, prompt, options)


@needs(Role.OPERATOR)
def start_study_run(pending: PendingRun, settings: Sequence[str] = ()) -> str:
    """Queue a run of a study, or a new attempt of a stopped one, and return its id; a running one is left alone."""
    return start(_runs_root(), load_study(pending.key.study), pending, settings)


@needs(Role.OPERATOR)
def stop_study(name: str, scale: str) -> int:
    """Ask every run and evaluation of a study at a scale to stop and return how many there are."""
    return stop_all(_runs_root(), load_study(name), Scale(scale))


@needs(Role.OPERATOR)
def submit_judge(content: dict[str, object]) -> str:
    """Queue a judge's job as a form describes it and return its id.

    Raises:
        SpecError: A wrong field, or a run that this judge cannot judge.
        CommandError: There is no such run, or its folder cannot be written.
    """
    try:
        return judgements.submit_judge(_runs_root(), parse_judge_spec(content, "form"))
    except RunDirectoryError as error:
        raise CommandError(str(error)) from None


@needs(Role.OPERATOR)
def mark_case(case_set: str, case: SavedCase, is_kept: bool = True) -> None:
    """Add a case to a named set, or remove it."""
    annotations.mark_case(_runs_root(), case_set, case, is_kept)


@needs(Role.OPERATOR)
def mark_trajectory(mark: MarkedTrajectory, is_kept: bool = True) -> None:
    """Mark a trajectory with a comment, or remove the mark."""
    annotations.mark_trajectory(_runs_root(), mark, is_kept)


@needs(Role.OPERATOR)
def set_verdict(run_id: str, attempt: int, trajectory_id: int, is_valid: bool | None) -> None:
    """Set the user's verdict on a chain of thought, which counts before any judge's; None removes it."""
    annotations.set_verdict(_runs_root(), run_id, attempt, trajectory_id, is_valid)


@needs(Role.OPERATOR)
def preview_data(spec: TrainSpec) -> DataPreview:
    """Return the first questions of a specification and how long they are."""
    return data_preview.preview_data(spec)


@needs(Role.OPERATOR)
def start_probe(spec: TrainSpec) -> ProbeProcess:
    """Start to sample answers of a specification's model, without a run."""
    return ProbeProcess(spec, _runs_root())


@needs(Role.OPERATOR)
def save_draft(name: str, content: Mapping[str, object]) -> None:
    """Save the content of a form under a name."""
    drafts.save_draft(_runs_root(), name, content)


def load_draft(name: str) -> dict[str, object]:
    """Return the content of a draft."""
    return drafts.load_draft(_runs_root(), name)


def list_drafts() -> list[str]:
    """Return the names of all drafts."""
    return drafts.list_drafts(_runs_root())


@needs(Role.OPERATOR)
def delete_draft(name: str) -> None:
    """Remove a draft."""
    drafts.delete_draft(_runs_root(), name)


def list_views() -> dict[str, dict[str, str]]:
    """Return the parameters of every saved view by its name."""
    return SAVED_VIEWS.list(_runs_root())


def find_view_fault() -> str:
    """Return in one sentence why no saved view can be read, nothing where they can."""
    return SAVED_VIEWS.find_fault(_runs_root())


@needs(Role.OPERATOR)
def save_view(name: str, parameters: Mapping[str, str]) -> None:
    """Keep how curves are drawn under a name."""
    SAVED_VIEWS.save(_runs_root(), name, parameters)


@needs(Role.OPERATOR)
def delete_view(name: str) -> None:
    """Remove a saved view."""
    SAVED_VIEWS.delete(_runs_root(), name)


def journal_entries() -> list[JournalEntry]:
    """Return everything that users asked for, oldest first."""
    return Journal(_runs_root()).entries()


def examine_machine() -> list[Finding]:
    """Return what `exgrpo doctor` finds; takes seconds."""
    current = settings.current()
    return machine_report.examine_machine(current.runs_root, current.database_url)


def token_data(
    run_id: str, file: str, trajectory_id: int, *, replayed_in: int | None, has_texts: bool = True
) -> dict[str, list[Any] | None] | None:
    """Return the per-token values recorded of a trajectory, as it was generated, or replayed in a step.

    `texts`, if asked for, holds the text of each token.

    None if the file or the trajectory does not exist; a value is None if it was not kept.
    """
    try:
        run = RunDirectory.open(_runs_root(), run_id)
        data = read_token_data(inside(run.path, file), trajectory_id, replayed_in)
    except (RunDirectoryError, OSError, KeyError, ValueError):
        return None
    ids = data["token_ids"]
    return {
        **data,
        "texts": None if ids is None or not has_texts else token_texts(run, [int(number) for number in ids]),
    }
