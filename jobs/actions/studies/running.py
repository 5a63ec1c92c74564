"""Starting what is missing of a study, and how many GPU hours that would take on the paper's GPUs; coarse."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from exgrpo.db.connections.session import Database
from exgrpo.db.rows.runs import RunRow
from exgrpo.jobs.actions import run_actions
from exgrpo.jobs.actions.evaluations import plan_evaluation_after
from exgrpo.jobs.actions.preflight.memory_estimate import ASSUMED_LENGTH_SHARE
from exgrpo.jobs.actions.queueing import queue_job
from exgrpo.jobs.actions.studies.definition import RunKey, Scale, Study, key_from_tags, spec_of
from exgrpo.jobs.actions.studies.study_results import find_runs
from exgrpo.jobs.evaluation.protocols import load_protocols
from exgrpo.jobs.runs.directory import CommandError, RunDirectory, list_run_directories
from exgrpo.jobs.runs.people import Role, needs
from exgrpo.jobs.runs.state import read_state
from exgrpo.jobs.specs.base import checked
from exgrpo.jobs.specs.evaluation import EvalSpec
from exgrpo.jobs.specs.settings import apply_settings
from exgrpo.jobs.specs.train import SpecError, TrainSpec
from exgrpo.jobs.training.pretrained.model_shapes import model_shape
from exgrpo_core.config import RewardKind
from exgrpo_core.recording.run_status import BROKEN, RunStatus


@dataclass(frozen=True, slots=True)
class PendingRun:
    """A wanted run that has not finished: the newest try, None where there was none."""

    key: RunKey
    run: RunRow | None


def pending_runs(database: Database, study: Study, keys: Sequence[RunKey]) -> list[PendingRun]:
    """Return the wanted runs that have not finished, in the order asked for."""
    newest = find_runs(database, study)
    return [
        PendingRun(key, newest.get(key))
        for key in keys
        if key not in newest or newest[key].status != RunStatus.FINISHED
    ]


@needs(Role.OPERATOR)
def start(runs_root: Path, study: Study, pending: PendingRun, settings: Sequence[str] = ()) -> str:
    """Queue a run, or a new attempt where it was stopped, failed or lost, and return its id; one under way is kept.

    A cell that starts from another one's checkpoint waits for that run. At the paper's scale a run that is compared by
    its scores is followed by an evaluation of its last checkpoint. `settings` are `field=value` changes of a new run,
    such as a backbone or data of one's own.

    Raises:
        CommandError: It cannot be queued, or no run that it starts from is finished or under way.
        SpecError: The cell's settings contradict each other.
    """
    if pending.run is None:
        source = _starting_point(runs_root, study, pending.key)
        spec = apply_settings(spec_of(study, pending.key), [*settings, *source])
        run_id = queue_job(runs_root, spec)
        if is_scored(study, pending.key.scale, spec):
            run = RunDirectory.open(runs_root, run_id)
            queue_job(runs_root, plan_evaluation_after(run, scoring_of(spec), f"study {study.name}"))
        return run_id
    if pending.run.status in BROKEN:
        run_actions.resume(runs_root, pending.run.run_id)
    return pending.run.run_id


@needs(Role.OPERATOR)
def stop_all(runs_root: Path, study: Study, scale: Scale) -> int:
    """Ask every run and evaluation of a study at a scale to stop, those that wait for others first; return how many."""
    num_stopped = 0
    for run in reversed(list_run_directories(runs_root)):
        key = _key_of(run)
        if key is None or (key.study, key.scale) != (study.name, scale) or read_state(run).is_ended:
            continue
        run_actions.stop(runs_root, run.run_id)
        num_stopped += 1
    return num_stopped


def is_scored(study: Study, scale: Scale, spec: TrainSpec) -> bool:
    """Return whether an evaluation follows a run of a study: its figures are benchmark scores."""
    has_right_answers = spec.algorithm.reward_kind is RewardKind.BINARY
    return scale is Scale.PAPER and study.measure == "held_out" and has_right_answers


def scoring_of(spec: TrainSpec) -> dict[str, object]:
    """Return the fields of the evaluation that follows a run: every benchmark of the paper, asked as in training."""
    return {
        "name": f"{spec.name} scores",
        "generator": "embedded" if spec.model.device == "cpu" else "vllm",
        "benchmarks": [{"name": name} for name in load_protocols()],
        "template": spec.data.template,
        "max_response_tokens": spec.algorithm.max_response_tokens,
        "tags": list(spec.tags),
    }


def estimate_hours(study: Study, keys: Sequence[RunKey], settings: Sequence[str] = ()) -> float | None:
    """Return the H100 hours of runs at the paper's scale with evaluations, None where a model's size is unknown."""
    hours = 0.0
    for key in keys:
        spec = apply_settings(spec_of(study, key), settings)
        training = estimate_gpu_hours(spec)
        if training is None:
            return None
        hours += training
        if is_scored(study, key.scale, spec):
            scoring = checked(EvalSpec, {**scoring_of(spec), "model": {"source": spec.model.source}}, "study")
            hours += estimate_scoring_hours(scoring, spec.model.source) or 0.0
    return hours


def _starting_point(runs_root: Path, study: Study, key: RunKey) -> list[str]:
    """Return the settings that name the checkpoint to start from, none for a cell that starts from the model itself."""
    name = study.cell(key.cell).starts_from
    if name is None:
        return []
    wanted = replace(key, cell=name)
    runs = [run for run in reversed(list_run_directories(runs_root)) if _key_of(run) == wanted]
    states = [(run.run_id, read_state(run)) for run in runs if isinstance(run.job_spec(), TrainSpec)]
    for run_id, state in states:
        if state.status is RunStatus.FINISHED:
            return [f"model.source={run_id}@last"]
    for run_id, state in states:
        if not state.is_ended:
            return [f"model.source={run_id}@last", f"waits_for={run_id}"]
    raise CommandError(
        f"{key.cell}, seed {key.seed}: starts from {name}, which has no finished or running run of this seed; "
        "start or resume that first."
    )


def _key_of(run: RunDirectory) -> RunKey | None:
    try:
        return key_from_tags(run.job_spec().tags)
    except SpecError:
        return None


TRAINING_FLOPS = 12
"""Floating-point operations a parameter and token: update with gradient checkpointing, and three scorings."""
IMITATION_FLOPS = 8
"""The same for supervised fine-tuning: forward twice, backward once."""
FLOPS_A_SECOND = 4e14
"""What an H100 does of them in training: 40% of its peak in bfloat16."""
PARAMETER_TOKENS_A_SECOND = 2.8e13
"""Tokens a second that vLLM generates on an H100, times the model's parameters: 4,000 at 7 billion."""
_SECONDS_AN_HOUR = 3600.0


def estimate_gpu_hours(spec: TrainSpec) -> float | None:
    """Return the H100 hours of a training run, None where the model's size is not known.

    Responses are taken to be a quarter of the longest allowed. The main run of the paper comes to about 200.
    """
    shape = model_shape(spec.model.source, spec.model.revision)
    if shape is None:
        return None
    config = spec.algorithm
    response = config.max_response_tokens * ASSUMED_LENGTH_SHARE
    num_responses = config.batch_size * (1 if spec.sft is not None else config.rollouts_per_question)
    num_tokens = spec.num_steps * num_responses * response
    flops = IMITATION_FLOPS if spec.sft is not None else TRAINING_FLOPS
    seconds = num_tokens * shape.parameters * flops / FLOPS_A_SECOND
    if spec.sft is None:
        seconds += num_tokens * shape.parameters / PARAMETER_TOKENS_A_SECOND
    return seconds / _SECONDS_AN_HOUR


def estimate_step_seconds(spec: TrainSpec) -> float | None:
    """Return the seconds that a step of a verl run takes on its GPUs if they are H100s, None where it is not known.

    Nor is it of a tiny model, where it is not the tokens that take the time.
    """
    hours = estimate_gpu_hours(spec)
    seconds = 0.0 if hours is None else hours * _SECONDS_AN_HOUR / spec.num_steps / spec.num_gpus
    return seconds if seconds >= 1 else None


def estimate_scoring_hours(spec: EvalSpec, source: str) -> float | None:
    """Return the H100 hours that an evaluation of the model `source` takes, None where its size is not known."""
    shape = model_shape(source)
    if shape is None:
        return None
    protocols = load_protocols()
    num_answers = sum(
        (choice.num_questions or protocols[choice.name].num_questions or 0)
        * (choice.samples_per_question or protocols[choice.name].samples_per_question)
        for choice in spec.benchmarks
    )
    num_tokens = num_answers * spec.max_response_tokens * ASSUMED_LENGTH_SHARE
    return num_tokens * shape.parameters / PARAMETER_TOKENS_A_SECOND / _SECONDS_AN_HOUR
