"""What pages do by `jobs`: one table of requests, each with the role that it needs, and reads of files.

What is called gets the runs root first; the journal records who asked.
"""

from collections.abc import Callable, Mapping
from functools import partial, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from app import settings
from app.settings import Role, current_person
from db.rows.trajectories import TrajectoryFacets
from exgrpo_core.errors import Mistake, UserError
from exgrpo_core.run_files import trajectory_file
from jobs.actions import annotations, branching, evaluations, named_entries, progress, queueing, run_actions, run_bin
from jobs.actions.import_process import format_file, import_in_process
from jobs.actions.named_entries import RAY_CLUSTERS, SAVED_VIEWS
from jobs.actions.playground import process
from jobs.actions.playground.process import ProbeProcess
from jobs.actions.preflight import benchmark_look, data_preview, dry_run, launch_scripts, model_look, resolution
from jobs.actions.preflight.benchmark_look import BenchmarkLook
from jobs.actions.preflight.data_preview import DataPreview
from jobs.actions.preflight.launch_scripts import LaunchScript, ScriptKind
from jobs.actions.preflight.resolution import Preflight
from jobs.actions.rollout_import import skipped_rows
from jobs.actions.studies import sweeps
from jobs.actions.token_texts import token_texts
from jobs.evaluation import protocols as declared_benchmarks
from jobs.evaluation.analysis import score_curves as evaluated
from jobs.execution.supervisor import instance
from jobs.machine import engine_environments, machine_report
from jobs.machine.machine_report import Finding
from jobs.queries import calls
from jobs.runs import directory, lookup, state
from jobs.runs.attempts import read_outcome
from jobs.runs.control import RunStatus
from jobs.runs.directory import RunDirectory, RunDirectoryError
from jobs.runs.journal import Journal, JournalEntry, acting_as
from jobs.runs.lookup import CommandError
from jobs.runs.recording import rollout_reader
from jobs.runs.rollout_formats.own_format import load_own_format
from jobs.specs import judging
from jobs.specs import train as train_specs
from jobs.specs.train import (
    SpecError,
    TrainSpec,
)
from jobs.training.data_rows import DataError, DeclaredKind

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class RefusedError(CommandError, SpecError, DataError):
    """The user has no role that allows the request, or the pages only read."""


def _read(action: Callable[Concatenate[Path, Arguments], Result]) -> Callable[Arguments, Result]:
    """Return the action on this process's runs root."""

    @wraps(action)
    def run(*arguments: Arguments.args, **words: Arguments.kwargs) -> Result:
        return action(settings.current().runs_root, *arguments, **words)

    return run


def _needs(role: Role, action: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Return the action, refused to users below a role; the journal records who asked for it."""

    @wraps(action)
    def run(*arguments: Arguments.args, **words: Arguments.kwargs) -> Result:
        person = current_person()
        if settings.current().is_view and role > Role.VIEWER:
            raise RefusedError("These pages only read; `exgrpo up` opens a folder of runs that can be changed.")
        if person is None or person.role < role:
            who = "Nobody is signed in" if person is None else f"{person.name} is {person.role.name.lower()}"
            raise RefusedError(
                f"{who}, but this needs the role {role.name.lower()}; ask the person who runs the server for it."
            )
        with acting_as(person.name):
            return action(*arguments, **words)

    return run


def _operator(action: Callable[Concatenate[Path, Arguments], Result]) -> Callable[Arguments, Result]:
    return _needs(Role.OPERATOR, _read(action))


def _admin(action: Callable[Concatenate[Path, Arguments], Result]) -> Callable[Arguments, Result]:
    return _needs(Role.ADMIN, _read(action))


def _check(root: Path, content: dict[str, object], branched: tuple[str, int] | None = None) -> Preflight:
    """Return the specification that a form holds, resolved; it can be queued even where the disk may become full.

    `branched` names the run and the step of the checkpoint that it continues from.

    Raises:
        SpecError: One sentence per wrong field.
        RunRefusedError: Every field is valid, but the run cannot be queued.
    """
    has_no_address = _lacks_address(content)
    spec = train_specs.parse_spec(_without_address(content) if has_no_address else content, "form")
    if branched is None:
        preflight = resolution.resolve(spec, root, is_quick=True)
    else:
        preflight = branching.check_branch(root, *branched, spec, is_quick=True)
    if has_no_address:  # what this machine lacks says nothing of another
        others = [refusal for refusal in preflight.refusals if not refusal.is_local]
        preflight.refusals = [resolution.Refusal(NO_ADDRESS, is_local=False), *others]
    preflight.raise_refusals()
    return preflight


NO_ADDRESS = Mistake("expected an address to launch it from here; the scripts below need none.", "verl.ray.address")
"""The reason against a launch on a cluster that one cannot reach, whose script and estimates are there all the same."""


def _lacks_address(content: Mapping[str, Any]) -> bool:
    """Whether a form asks for a cluster and names none yet."""
    verl = content.get("verl")
    return isinstance(verl, dict) and isinstance(verl.get("ray"), dict) and verl["ray"].get("address") == ""


def _without_address(content: Mapping[str, Any]) -> dict[str, Any]:
    verl = content["verl"]
    return {**content, "verl": {**verl, "ray": {**verl["ray"], "address": None}}}


def _clone(root: Path, run_id: str) -> TrainSpec:
    """Return the specification of a run under a name that no run has, to start another from."""
    spec = run_actions.clone(root, run_id)
    return spec.model_copy(update={"name": run_actions.name_of_copy(root, spec.name)})


def _failure(root: Path, run_id: str) -> list[Mistake]:
    """Return why a run failed, with the fields to change where its end names some; nothing of others."""
    try:
        run = RunDirectory.open(root, run_id)
    except RunDirectoryError:
        return []
    end = read_outcome(run.attempt_path(run.newest_attempt()))
    if end is None or end.status is not RunStatus.FAILED:
        return []
    return [Mistake(end.reason.removeprefix(f"{', '.join(end.fields)}: "), *end.fields)]


def _submit_judge(root: Path, content: dict[str, object]) -> str:
    """Queue a judge's job as a form describes it and return its id.

    Raises:
        SpecError: A wrong field, or a run that this judge cannot judge.
        CommandError: There is no such run, or its folder cannot be written.
    """
    try:
        return queueing.queue_job(root, judging.parse_judge_spec(content, "form"))
    except RunDirectoryError as error:
        raise CommandError(str(error)) from None


def _evaluate(root: Path, target: str, fields: dict[str, object]) -> str:
    """Queue the evaluation of `RUN@STEP`, a model's folder or hub name, and return its id."""
    return queueing.queue_job(root, evaluations.plan_evaluation(root, target, fields, "form"))


def _look_at_benchmark(
    root: Path, source: str, target: str, template: str | None, answer_kind: DeclaredKind | None
) -> BenchmarkLook:
    """Read a file or data set as a benchmark; its first question is as `target` will be asked and graded."""
    asked, graded = evaluations.asked_and_graded(root, target)
    return benchmark_look.look_at_benchmark(root, source, template or asked, answer_kind or graded)


def _start_probe(root: Path, spec: TrainSpec) -> ProbeProcess:
    """Start to sample answers of a specification's model, without a run."""
    return ProbeProcess(spec, root)


def _preview_rollouts(_: Path, path: str, mapping: str) -> DataPreview:
    """Return the first rollouts at a path, read by a mapping in YAML where there is one.

    Raises:
        UserError: There are none, or the mapping is wrong.
    """
    with format_file(mapping) as file:
        return data_preview.preview_rollouts(Path(path), None if file is None else load_own_format(file))


def _launch_script(root: Path, spec: TrainSpec, kind: ScriptKind) -> LaunchScript:
    """Return what starts a run on other machines."""
    return launch_scripts.write_script(spec, root, kind)


def _dry_run_text(root: Path, spec: TrainSpec) -> str:
    """Return the text of a dry run, which may take seconds, or why there is none."""
    try:
        return dry_run.describe_plan(dry_run.plan_run(spec, root))
    except UserError as error:
        return str(error)


def _job_progress(root: Path, run_id: str) -> tuple[int, int] | None:
    """Return how many steps, questions or votes are done, and of how many; None before they are counted."""
    try:
        return progress.job_progress(RunDirectory.open(root, run_id))
    except RunDirectoryError:
        return None


def _status_by_files(root: Path, run_id: str) -> str:
    """Return a run's state by its files and the journal, which know of a request before the database does."""
    return state.read_state(lookup.open_run(root, run_id)).status


def _describe_stop(root: Path, run_id: str) -> str | None:
    """Return what a stopping run waits for and how long that may take; None unless a stop of it was requested."""
    grace = supervisor.stop_grace_seconds if (supervisor := instance.read_supervisor(root)) else None
    try:
        return progress.describe_stop(RunDirectory.open(root, run_id), grace)
    except RunDirectoryError:
        return None


def _token_data(
    root: Path, run_id: str, file: str, trajectory_id: int, *, replayed_in: int | None, has_texts: bool = True
) -> dict[str, list[Any] | None] | None:
    """Return the per-token values recorded of a trajectory, as it was generated, or replayed in a step.

    `texts`, if asked for, holds the text of each token.

    None if the file or the trajectory does not exist; a value is None if it was not kept.
    """
    try:
        run = RunDirectory.open(root, run_id)
        name, _, place = file.partition("@")  # the byte of a line, where a loop recorded it
        path = directory.inside(run.path, name)
        if place:
            data = rollout_reader.read_tokens(path, place)
        else:
            data = trajectory_file.read_token_data(path, trajectory_id, replayed_in)
    except (RunDirectoryError, OSError, KeyError, ValueError):
        return None
    ids = data["token_ids"]
    texts = None if ids is None or not has_texts else token_texts(run, [int(number) for number in ids])
    return {**data, "texts": texts}


def _user_benchmarks(root: Path) -> tuple[dict[str, str], list[str]]:
    """Return the titles of the user's benchmarks by name, and a sentence on each wrong entry, which is left out."""
    declared = declared_benchmarks.load_user_benchmarks(root)
    return {name: choice.title or name for name, choice in declared.choices.items()}, declared.faults


def _journal_entries(root: Path) -> list[JournalEntry]:
    """Return everything that users asked for, oldest first."""
    return Journal(root).entries()


def _examine_machine(root: Path) -> list[Finding]:
    """Return what `exgrpo doctor` finds; takes seconds."""
    return machine_report.examine_machine(root, settings.current().database_url)


describe_missing_package = engine_environments.describe_missing_package


def missing_vllm() -> str:
    """Return in one sentence that no environment has vLLM and which command makes one, nothing where one has it."""
    try:
        engine_environments.engine_python(engine_environments.VLLM_LOOP)
    except engine_environments.EngineEnvironmentError as error:
        return str(error)
    return ""


# Runs and jobs
check = _operator(_check)
submit = _operator(queueing.queue_job)
stop = _operator(run_actions.stop)
resume = _operator(run_actions.resume)
branch = _operator(branching.branch)
rename = _operator(run_actions.rename)
tag = _operator(run_actions.tag)
note = _operator(run_actions.note)
archive = _admin(run_actions.archive)
delete = _admin(run_bin.delete)
restore = _admin(run_bin.restore)
empty_bin = _admin(run_bin.empty)
evaluate = _operator(_evaluate)
look_at_benchmark = _operator(_look_at_benchmark)
keep_benchmark_file = _operator(benchmark_look.keep_benchmark_file)
submit_judge = _operator(_submit_judge)
start_study_run = _operator(sweeps.start_run)
stop_study = _operator(sweeps.stop_all)
keep_sweep = _operator(sweeps.keep_text)
start_probe = _operator(_start_probe)
import_rollouts = _operator(import_in_process)
preview_rollouts = _operator(_preview_rollouts)
preview_data = _needs(Role.OPERATOR, data_preview.preview_data)
first_look = _needs(Role.OPERATOR, model_look.first_look)
chat = _operator(process.ask_models)

read_facets = partial(calls.call, {"trajectories": TrajectoryFacets}, "trajectories")

# What users write down
mark_case = _operator(annotations.mark_case)
mark_trajectory = _operator(annotations.mark_trajectory)
set_verdict = _operator(annotations.set_verdict)
save_draft = _operator(named_entries.save_draft)
delete_draft = _operator(named_entries.delete_draft)
save_view = _operator(SAVED_VIEWS.save)
delete_view = _operator(SAVED_VIEWS.delete)

# Other machines; nothing is sent to a cluster unless an administrator asks for it
launch_script = _operator(_launch_script)
dry_run_text = _operator(_dry_run_text)
save_cluster = _admin(named_entries.save_cluster)
delete_cluster = _admin(named_entries.delete_cluster)
ask_cluster = _admin(named_entries.ask_cluster)

# Reads, for everyone who may see pages
clone = _read(_clone)
branch_spec = _read(branching.branch_spec)
failure = _read(_failure)
list_skipped = _read(skipped_rows)
list_deleted = _read(run_bin.list_deleted)
job_progress = _read(_job_progress)
status_by_files = _read(_status_by_files)
describe_stop = _read(_describe_stop)
load_draft = _read(named_entries.load_draft)
list_drafts = _read(named_entries.list_drafts)
list_views = _read(SAVED_VIEWS.list)
find_view_fault = _read(SAVED_VIEWS.find_fault)
list_clusters = _read(named_entries.list_clusters)
find_cluster_fault = _read(RAY_CLUSTERS.find_fault)
journal_entries = _read(_journal_entries)
examine_machine = _read(_examine_machine)
token_data = _read(_token_data)
evaluation_answers = _read(evaluated.evaluation_answers)
evaluation_questions = _read(evaluated.evaluation_questions)
answer_damage = _read(evaluated.answer_damage)
score_curves = _read(evaluated.score_curves)
score_curves_by_difficulty = _read(evaluated.score_curves_by_difficulty)
user_benchmarks = _read(_user_benchmarks)
benchmarks_folder = _read(declared_benchmarks.benchmarks_folder)
