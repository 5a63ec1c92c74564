"""Executing recorded steps again, up to the advantages: the stages `loss` and `update` load torch."""

from collections.abc import Sequence
from pathlib import Path

from exgrpo.db.connections.session import Database
from exgrpo.db.rows.spec_fields import RECORDED_KIND
from exgrpo.jobs.actions.replay.advantages import advantage_facts, formula_facts
from exgrpo.jobs.actions.replay.facts import Fact, ReplayError
from exgrpo.jobs.actions.replay.recorded_step import RecordedStep
from exgrpo.jobs.actions.replay.rewards import reward_facts
from exgrpo.jobs.actions.replay.selection import selection_facts
from exgrpo.jobs.actions.replay.side_by_side import changed_spec, other_facts
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


def open_step(database: Database, runs_root: Path, run_id: str, step: int) -> RecordedStep:
    """Return a step that a run recorded.

    Raises:
        InputError: It has no trajectories, or there is no such run.
    """
    recorded = RecordedStep(database, RunDirectory.open(runs_root, run_id), step)
    if not recorded.trajectories:
        raise ReplayError(f"{run_id}: recorded no trajectories of step {step}; `exgrpo query curves` lists its steps.")
    return recorded


def facts_of(recorded: RecordedStep, settings: Sequence[str], method: str | None) -> Sequence[Fact]:
    """Return every comparison of a step up to its advantages; see `step_facts`."""
    run = recorded.run
    if settings or method is not None:
        return other_facts(recorded, run.spec(), changed_spec(run.spec(), settings, method))
    spec = run.job_spec()
    if spec.kind == RECORDED_KIND:
        return formula_facts(recorded)
    if not isinstance(spec, TrainSpec):
        raise ReplayError(f"{run.run_id}: is of kind {spec.kind}; only training has steps to execute again.")
    config = spec.algorithm
    return [*selection_facts(recorded, config), *reward_facts(recorded, spec), *advantage_facts(recorded, config)]
