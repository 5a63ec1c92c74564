"""Executing recorded steps again, up to the advantages: the stages `loss` and `update` load torch."""

from collections.abc import Sequence
from pathlib import Path

from exgrpo.db.connections.session import Database
from exgrpo.db.queries.selections import steps_with_trajectories
from exgrpo.db.rows.spec_fields import RECORDED_KIND
from exgrpo.jobs.actions.replay.advantages import advantage_facts, aggregation_facts, formula_facts
from exgrpo.jobs.actions.replay.facts import Fact, ReplayError, Stage
from exgrpo.jobs.actions.replay.recorded_step import RecordedStep
from exgrpo.jobs.actions.replay.rewards import reward_facts
from exgrpo.jobs.actions.replay.selection import selection_facts
from exgrpo.jobs.actions.replay.side_by_side import changed_spec, other_facts
from exgrpo.jobs.runs.checkpoints import checkpoint_path
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.people import Role, needs
from exgrpo.jobs.specs.train import TrainSpec


@needs(Role.VIEWER)
def step_facts(
    database: Database,
    runs_root: Path,
    run_id: str,
    step: int,
    settings: Sequence[str] = (),
    method: str | None = None,
) -> Sequence[Fact]:
    """Execute a recorded step again and return every comparison.

    Of a run that another program recorded, its advantages are compared with the formulas of the field. With other
    settings, as `field=value`, or the algorithm of a preset, computed values are those that the step would have had.

    Raises:
        InputError: The run did not record this step, it has no steps, or a setting is wrong.
    """
    return facts_of(open_step(database, runs_root, run_id, step), settings, method)


@needs(Role.VIEWER)
def obstacles(runs_root: Path, run_id: str, step: int) -> dict[Stage, str]:
    """Return why the stages that load torch cannot be executed, by the settings and files of the run, each if so."""
    run = RunDirectory.open(runs_root, run_id)
    spec = run.job_spec()
    if not isinstance(spec, TrainSpec):
        return dict.fromkeys((Stage.LOSS, Stage.UPDATE), "Only training has steps to execute again.")
    if not spec.recording.keeps_seen:
        kept = spec.recording.token_data
        why = f"`recording.token_data: all` records what loss and update need; of this run it is `{kept}`."
        return dict.fromkeys((Stage.LOSS, Stage.UPDATE), why)
    if spec.engine != "embedded":
        return {Stage.UPDATE: "Only updates of the embedded engine are executed."}
    if step > 1 and not checkpoint_path(run.checkpoints_path, step - 1).exists():
        why = (
            f"There is no checkpoint of step {step - 1}; `checkpoint_interval: 1` and a larger `num_checkpoints_kept` "
            "keep those of all steps."
        )
        return {Stage.UPDATE: why}
    return {}


def open_step(database: Database, runs_root: Path, run_id: str, step: int) -> RecordedStep:
    """Return a step that a run recorded, and refuse one without trajectories."""
    recorded = RecordedStep(database, RunDirectory.open(runs_root, run_id), step)
    if not recorded.trajectories:
        last = max(steps_with_trajectories(database, run_id), default=step)
        hint = f"its last step is {last}" if last < step else "`exgrpo query curves` lists its steps"
        raise ReplayError(f"{run_id}: recorded no trajectories of step {step}; {hint}.")
    return recorded


def facts_of(recorded: RecordedStep, settings: Sequence[str], method: str | None) -> Sequence[Fact]:
    """Return every comparison of a step up to its advantages; see `step_facts`."""
    run = recorded.run
    if settings or method is not None:
        return other_facts(recorded, run.spec(), changed_spec(run.spec(), settings, method))
    spec = run.job_spec()
    if spec.kind == RECORDED_KIND:
        return [*formula_facts(recorded), *aggregation_facts(recorded)]
    if not isinstance(spec, TrainSpec):
        raise ReplayError(
            f"{run.run_id}: is of kind {spec.kind}; only training has steps to execute again; `exgrpo runs` lists runs."
        )
    config = spec.algorithm
    return [*selection_facts(recorded, config), *reward_facts(recorded, spec), *advantage_facts(recorded, config)]
