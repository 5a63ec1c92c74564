"""Stage update: Algorithm 1 on the checkpoint before the step, whose rollouts are the recorded ones.

Only the embedded engine's steps are executed. On the processor that trained, with as many threads, every number is the
recorded one, and the weights after the step are those of its checkpoint, bit for bit.
"""

import dataclasses
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np

from exgrpo.db.connections.session import Database
from exgrpo.db.queries import recorded_steps
from exgrpo.jobs.actions.preflight.local_sources import with_model_source
from exgrpo.jobs.actions.replay.facts import Fact, Outcome, ReplayRow, Stage, compare, summed_up, unknown
from exgrpo.jobs.actions.replay.recorded_step import RecordedStep, as_trajectory
from exgrpo.jobs.actions.replay.side_by_side import changed_spec
from exgrpo.jobs.actions.replay.steps import obstacles
from exgrpo.jobs.runs.checkpoints import DamagedCheckpointError, checkpoint_path, kept_start, open_checkpoint
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.specs.train import TrainSpec
from exgrpo.jobs.training.run_components import RunComponents, TrainingEngine
from exgrpo_core.algorithm import exgrpo_step
from exgrpo_core.engine import RolloutRequest
from exgrpo_core.errors import EngineError, UserError
from exgrpo_core.experience_management.storage.append_file import BufferCorruptionError
from exgrpo_core.methods.loading import ObjectiveSettings
from exgrpo_core.policy_optimization.mixed_batch import MiniBatch
from exgrpo_core.state import ExGRPOState, StateError
from exgrpo_core.types import Experience, Question, RolloutGroup, Trajectory, TrajectoryScores

_TOLERANCE = 1e-5
"""Relative, of metrics: another processor rounds differently. Weights have none."""
_OF_UPDATE = ("loss/", "ratio/", "optim/")
"""How the names of metrics that the update gives begin."""
WEIGHTS = "weights"


class RolloutsMissingError(UserError):
    """The step asks for rollouts that were not recorded; one sentence says which."""


class RecordedRollouts:
    """An engine whose rollouts are those that a step recorded; all else the engine of the model does."""

    def __init__(self, engine: TrainingEngine, recorded: Mapping[int, Sequence[Trajectory]]) -> None:
        self._engine = engine
        self._recorded = recorded

    def rollout(self, requests: Sequence[RolloutRequest]) -> list[RolloutGroup]:
        """Return the recorded group of each request.

        Raises:
            RolloutsMissingError: A question has no recorded rollouts, or another number of them.
        """
        groups = []
        for request in requests:
            index, found = request.question.index, self._recorded.get(request.question.index, ())
            if len(found) != request.num_rollouts:
                raise RolloutsMissingError(
                    f"The step would ask for {request.num_rollouts} rollouts of question {index}, but "
                    f"{len(found)} are recorded."
                )
            groups.append(RolloutGroup(request.question, list(found)))
        return groups

    def entropies(self, questions: Sequence[Question], candidates: Sequence[Experience]) -> TrajectoryScores:
        """Score stored trajectories by the model."""
        return self._engine.entropies(questions, candidates)

    def update(self, mini_batches: Sequence[MiniBatch], objective: ObjectiveSettings) -> dict[str, float]:
        """Update the model."""
        return self._engine.update(mini_batches, objective)


def execute_updates(
    database: Database,
    runs_root: Path,
    run_id: str,
    steps: Sequence[int],
    settings: Sequence[str] = (),
    method: str | None = None,
) -> list[ReplayRow]:
    """Execute the update of recorded steps, in their order, and return what was compared.

    With other settings, computed values are those that the recorded rollouts would have given.

    Raises:
        InputError: A setting is wrong.
    """
    run = RunDirectory.open(runs_root, run_id)
    spec = run.job_spec()
    why = {step: obstacles(runs_root, run_id, step).get(Stage.UPDATE) for step in steps}
    rows = [row for step, words in why.items() if words for row in _not_executed([step], words)]
    steps = [step for step, words in why.items() if not words]
    if not steps or not isinstance(spec, TrainSpec):
        return rows
    other = changed_spec(spec, settings, method)
    try:
        with _opened(other, run) as components:
            for step in steps:
                rows += _executed(RecordedStep(database, run, step), other, run, components)
    except (UserError, EngineError) as error:  # the model or the data cannot be opened
        rows += _not_executed(steps, str(error))
    return rows


def _not_executed(steps: Sequence[int], why: str) -> list[ReplayRow]:
    return [row for step in steps for row in summed_up(step, [unknown(Stage.UPDATE, WEIGHTS, why)])]


def _opened(spec: TrainSpec, run: RunDirectory) -> AbstractContextManager[RunComponents]:
    from exgrpo.jobs.training.composition import open_components  # loads torch

    kept = kept_start(run, spec.model.source)
    return open_components(spec if kept is None else with_model_source(spec, str(kept.resolve())))


def _executed(recorded: RecordedStep, spec: TrainSpec, run: RunDirectory, components: RunComponents) -> list[ReplayRow]:
    try:
        return summed_up(recorded.step, list(_facts(recorded, spec, run, components)))
    except (UserError, EngineError, StateError, BufferCorruptionError, DamagedCheckpointError) as error:
        return _not_executed([recorded.step], str(error))


def _facts(recorded: RecordedStep, spec: TrainSpec, run: RunDirectory, components: RunComponents) -> Iterator[Fact]:
    fresh = _fresh_trajectories(recorded)
    before, after = (_checkpoint(run, number) for number in (recorded.step - 1, recorded.step))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        state = _state(run, before, spec, components, folder)
        try:
            engine = RecordedRollouts(components.engine, fresh)
            report = exgrpo_step(state, engine, spec.algorithm, is_last=recorded.step == spec.num_steps)
        finally:
            state.replay_buffer.close()
        yield from _metric_facts(recorded.line.get("metrics", {}), report.metrics)
        if after is None:
            yield unknown(Stage.UPDATE, WEIGHTS, f"There is no checkpoint of step {recorded.step}.")
            return
        components.engine.save(folder / "policy")
        yield from _weight_facts(after / "policy", folder / "policy")


def _checkpoint(run: RunDirectory, step: int) -> Path | None:
    path = checkpoint_path(run.checkpoints_path, step)
    return open_checkpoint(path).path if path.exists() else None


def _state(
    run: RunDirectory, before: Path | None, spec: TrainSpec, components: RunComponents, folder: Path
) -> ExGRPOState:
    """Return the state before the step, whose buffer reads the run's segments and writes into `folder`."""
    segments = folder / "buffer"
    segments.mkdir()
    of_data = (components.questions, spec.algorithm, components.external)
    if before is None:
        return ExGRPOState.create(segments, *of_data)
    for path in run.buffer_path.iterdir():
        (segments / path.name).symlink_to(path.resolve())
    components.engine.restore(before / "policy")
    return ExGRPOState.restore(segments, before / "experience", *of_data)


def _fresh_trajectories(recorded: RecordedStep) -> dict[int, list[Trajectory]]:
    rows, tokens = [row for row in recorded.trajectories if not row.is_replayed], recorded.tokens
    texts = recorded_steps.texts_of(recorded.database, recorded.run_id, recorded.step)
    found: dict[int, list[Trajectory]] = {}
    for row in rows:
        values = tokens.get((row.trajectory_id, False), {})
        if values.get("token_ids") is None or values.get("log_probs") is None:
            raise RolloutsMissingError(
                f"The tokens of trajectory {row.trajectory_id} were not recorded; `recording.token_data: all` records "
                "those of every rollout."
            )
        found.setdefault(row.question_index, []).append(as_trajectory(row, values, texts.get(row.trajectory_id, "")))
    return found


def _metric_facts(recorded: Mapping[str, float], computed: Mapping[str, float]) -> Iterator[Fact]:
    for name in sorted({*recorded, *computed}):
        if not name.startswith(_OF_UPDATE):
            continue
        if name in recorded and name in computed:
            yield compare(Stage.UPDATE, name, float(recorded[name]), float(computed[name]), tolerance=_TOLERANCE)
        else:
            where = "The record" if name in computed else "The executed step"
            yield unknown(Stage.UPDATE, name, f"{where} has no such metric.")


def _weight_facts(recorded: Path, executed: Path) -> Iterator[Fact]:
    """Compare every tensor of two folders of a policy; `note` names the first place that differs."""
    from safetensors.torch import load_file

    from exgrpo.jobs.training.engines.embedded.state_files import OPTIMIZER_FILE, SAMPLER_FILE

    for path in sorted(executed.glob("*.safetensors")):
        if path.name in {OPTIMIZER_FILE, SAMPLER_FILE}:
            continue  # weights follow from the moments, and recorded rollouts draw nothing
        there, here = load_file(recorded / path.name), load_file(path)
        for name in sorted({*there, *here}):
            arrays = [of[name].float().numpy().ravel() if name in of else np.empty(0) for of in (there, here)]
            fact = compare(Stage.UPDATE, WEIGHTS, *arrays)
            if fact.outcome is Outcome.DIFFERS:
                fact = dataclasses.replace(fact, token=None, note=f"{name} differs first, at place {fact.token}.")
            yield fact
