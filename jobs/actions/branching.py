"""Branches: new runs that continue from a checkpoint of another, with other settings where those can change."""

import shutil
from collections.abc import Iterator
from pathlib import Path

from exgrpo.db.rows.spec_differences import Difference, differences
from exgrpo.jobs.actions.preflight.resolution import Preflight, Refusal, complete, resolve
from exgrpo.jobs.actions.queueing import write_job
from exgrpo.jobs.actions.run_actions import MAX_PARENT_NAME, clone
from exgrpo.jobs.runs.checkpoints import Checkpoint, checkpoint_path, find_fault, list_steps
from exgrpo.jobs.runs.directory import CommandError, RunDirectory, inside
from exgrpo.jobs.runs.people import Role, needs
from exgrpo.jobs.specs.train import TrainSpec
from exgrpo_core.durable_files import link_or_copy
from exgrpo_core.errors import Mistake
from exgrpo_core.experience_management.storage.snapshot import read_snapshot
from exgrpo_core.faults import describe_fault
from exgrpo_core.state import BUFFER_FILE

_SEGMENT_ENDINGS = (".trajectories", ".rows")
_WEIGHTS = "the weights are those of the checkpoint"
_DRAWN = "its questions are drawn already and the buffer holds answers to them"
_STORED = "the buffer counts and stores answers by it"
FIXED = {
    "kind": "a branch is a training run",
    "engine": "the checkpoint is of that engine",
    "sft": _WEIGHTS,
    "model.source": _WEIGHTS,
    "model.warm_seed": _WEIGHTS,
    "model.demonstrator_errors": _WEIGHTS,
    "model.revision": _WEIGHTS,
    "model.lora": _WEIGHTS,
    "data": _DRAWN,
    "external_experience": _DRAWN,
    "external_column": _DRAWN,
    "algorithm.rollouts_per_question": _STORED,
    "algorithm.reward_kind": _STORED,
    "algorithm.seed": "random draws continue from the checkpoint",
    "seed": "random draws continue from the checkpoint",
}
"""Fields, and sections of them, that a branch has of its parent, each with the reason."""
_GROWING = ("algorithm.max_prompt_tokens", "algorithm.max_response_tokens")
_OF_GPUS = ("verl.gpus_per_node", "verl.num_nodes")
_FREE = frozenset({"name", "num_steps", "tags"})
"""Fields that no check of a machine or model reads."""


@needs(Role.VIEWER)
def branch_spec(runs_root: Path, run_id: str, step: int) -> TrainSpec:
    """Return the specification of a branch at `step` with its parent's settings, named after both.

    It ends at its parent's last step, or trains as many steps again where there are none left.

    Raises:
        CommandError: No such run, or no training run.
    """
    spec = clone(runs_root, run_id)
    last_step = spec.num_steps if spec.num_steps > step else step + spec.num_steps
    return spec.model_copy(update={"name": f"{spec.name[:MAX_PARENT_NAME]} from step {step}", "num_steps": last_step})


def branch_changes(runs_root: Path, run_id: str, spec: TrainSpec) -> list[Difference]:
    """Return the settings in which a branch or clone differs from its parent; its name and tags are none."""
    parent = clone(runs_root, run_id).model_dump(mode="json")
    changes = differences(parent, spec.model_dump(mode="json"))
    return [change for change in changes if change.path not in {"name", "tags"}]


@needs(Role.OPERATOR)
def check_branch(runs_root: Path, run_id: str, step: int, spec: TrainSpec) -> Preflight:
    """Return the branch's specification with every reason against it; a machine is asked where settings changed.

    Raises:
        CommandError: No such run, or no training run.
    """
    changes = branch_changes(runs_root, run_id, spec)
    is_resolved = any(change.path not in _FREE for change in changes)
    preflight = resolve(spec, runs_root, step) if is_resolved else Preflight(spec, spec, first_step=step)
    mistakes = [*_fixed(changes), *_too_small(changes), *_too_few_steps(spec, step), *_of_gpus(spec, changes)]
    preflight.refusals[:0] = [Refusal(mistake, is_local=False) for mistake in mistakes]
    return preflight


@needs(Role.OPERATOR)
def branch(runs_root: Path, run_id: str, step: int, spec: TrainSpec | None = None) -> str:
    """Queue a new run that continues from a checkpoint of another and return its id; without `spec` with its settings.

    Raises:
        CommandError: No such run, or no whole checkpoint at this step.
        RunRefusedError: A setting that cannot change did, no step is left, or a new run so would be refused.
    """
    spec = branch_spec(runs_root, run_id, step) if spec is None else spec
    return queue_branch(runs_root, run_id, step, check_branch(runs_root, run_id, step, spec))


@needs(Role.OPERATOR)
def queue_branch(runs_root: Path, run_id: str, step: int, preflight: Preflight) -> str:
    """Queue a branch that was checked just now and return its id; both runs share files by hard links.

    Raises:
        CommandError: As in `branch`.
    """
    parent = RunDirectory.open(runs_root, run_id)
    complete(preflight, runs_root).raise_refusals()
    checkpoint = checkpoint_path(parent.checkpoints_path, step)
    if not checkpoint.is_dir():
        steps = ", ".join(map(str, list_steps(checkpoint.parent)))
        raise CommandError(f"{run_id} has no checkpoint at step {step}; there are: {steps or 'none'}.")
    fault = find_fault(checkpoint)
    if fault is not None:
        raise CommandError(f"{run_id} cannot be branched at step {step}: {describe_fault(fault)} Choose another step.")
    return write_job(
        runs_root, preflight.requested, parent.run_id, step, lambda run: link_checkpoint(parent, run, step)
    )


def _fixed(changes: list[Difference]) -> Iterator[Mistake]:
    for change in changes:
        reason = next((FIXED[name] for name in FIXED if f"{change.path}.".startswith(f"{name}.")), None)
        if reason is not None:
            text = f"expected {change.before}, as of the parent: {reason}; clone the run to change it."
            yield Mistake(text, change.path)


def _too_small(changes: list[Difference]) -> Iterator[Mistake]:
    for change in changes:
        if change.path in _GROWING and change.after < change.before:  # type: ignore[operator]
            yield Mistake(f"expected at least {change.before}: the buffer holds answers as long.", change.path)


def _too_few_steps(spec: TrainSpec, step: int) -> Iterator[Mistake]:
    if step >= spec.num_steps:
        text = f"expected more than {step}, the step to branch at, got {spec.num_steps}; give a larger number."
        yield Mistake(text, "num_steps")


def _of_gpus(spec: TrainSpec, changes: list[Difference]) -> Iterator[Mistake]:
    if spec.engine == "verl":
        return
    for change in changes:
        if change.path in _OF_GPUS:
            text = "only a run on verl continues on another number of GPUs; leave it as it was."
            yield Mistake(text, change.path)


def link_checkpoint(parent: RunDirectory, run: RunDirectory, step: int) -> None:
    """Link the parent's checkpoint at `step`, the sealed segments of the buffer that it names, and its start.

    Raises:
        OSError: A file is missing or cannot be written.
        BufferCorruptionError: The checkpoint's buffer snapshot is damaged.
        RunDirectoryError: It names a segment outside the buffer's folder.
    """
    checkpoint = Checkpoint(step, checkpoint_path(parent.checkpoints_path, step))
    snapshot = checkpoint.experience / BUFFER_FILE
    if snapshot.exists():
        header, _ = read_snapshot(snapshot)
        for segment in header["segments"]:
            for ending in _SEGMENT_ENDINGS:
                name = f"{segment['name']}{ending}"
                link_or_copy(str(inside(parent.buffer_path, name)), str(run.buffer_path / name))
    shutil.copytree(checkpoint.path, checkpoint_path(run.checkpoints_path, step), copy_function=link_or_copy)
    if parent.model_path.is_dir():
        shutil.copytree(parent.model_path, run.model_path, copy_function=link_or_copy)
