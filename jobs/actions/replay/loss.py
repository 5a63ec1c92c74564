"""Stage loss: the core's objective on the log-probs that each mini-batch of the update saw, without the model.

`recording.token_data: all` records them. Torch is loaded only where they are.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from exgrpo.db.connections.session import Database
from exgrpo.jobs.actions.replay.facts import SMALLEST, Fact, Outcome, ReplayRow, Stage, compare, summed_up, unknown
from exgrpo.jobs.actions.replay.recorded_step import RecordedStep
from exgrpo.jobs.actions.replay.side_by_side import Effect, changed_fields, changed_spec
from exgrpo.jobs.actions.replay.steps import facts_of, open_step
from exgrpo.jobs.runs.people import Role, needs
from exgrpo.jobs.specs.train import TrainSpec
from exgrpo_core.config import ExGRPOConfig, LossAggregation
from exgrpo_core.errors import InputError, NotRecordedError
from exgrpo_core.methods.loading import ObjectiveSettings, build_objective
from exgrpo_core.policy_optimization.mixed_batch import (
    MiniBatch,
    TrainingRow,
    assign_advantages,
    group_rows,
    rows_with_gradient,
    weigh_tokens,
)
from exgrpo_core.recording.report_lines import MINI_BATCHES
from exgrpo_core.types import SEEN_VALUES, Float32Array, RolloutGroup

if TYPE_CHECKING:
    from exgrpo_core.policy_optimization.objective import LossInputs

_L = Stage.LOSS
_TOLERANCE, _LEAST = 1e-5, 1e-6
"""Relative and absolute: sums over other micro-batches round differently."""
_COUNTS = {"num_fresh": "fresh tokens", "num_replayed": "replayed tokens", "clipped": "clipped tokens"}
"""Sums that are whole numbers, and what they are."""
_GAP = "generator/log_prob_gap"
_NUM_TOKENS = "optim/num_updated_tokens"
_EXACT = frozenset({*_COUNTS.values(), _NUM_TOKENS})
_WITH_POLICY = frozenset({"loss/policy", "loss/total"})
_FLOAT32 = 2.0**-24
"""Largest relative error of one float32 addition."""
_TOKENS_OF_PART = 1 << 18
_NOT_SEEN = "The log-probs that the update saw were not recorded. `recording.token_data: all` records them."


@needs(Role.VIEWER)
def replay_step(
    database: Database,
    runs_root: Path,
    run_id: str,
    step: int,
    settings: Sequence[str] = (),
    method: str | None = None,
) -> list[ReplayRow]:
    """Execute a recorded step again from its files, and return a row for each kind of comparison, by stage."""
    recorded = open_step(database, runs_root, run_id, step)
    facts = [*facts_of(recorded, settings, method)]
    spec = recorded.run.job_spec()
    if not isinstance(spec, TrainSpec):
        return summed_up(step, facts)
    if not settings and method is None:
        return summed_up(step, [*facts, *loss_facts(recorded, spec.algorithm)])
    other = changed_spec(spec, settings, method)
    changed = changed_fields(spec, other, is_replay_open=bool(recorded.line.get("is_replay_open")))
    loss = list(_other_facts(recorded, other, changed, facts))
    later = [fact for fact in facts if fact.compared.partition(".")[2] in changed[Effect.LOSS]]
    facts = [fact for fact in facts if fact not in later]
    if {fact.outcome for fact in loss} == {Outcome.SAME}:
        facts += [dataclasses.replace(fact, note="The loss of this step is the same with it.") for fact in later]
    return summed_up(step, [*facts, *loss])


def _other_facts(
    recorded: RecordedStep, other: TrainSpec, changed: Mapping[Effect, set[str]], facts: Sequence[Fact]
) -> Iterator[Fact]:
    """Yield the loss with other settings, if these act on it; `facts` are those of the stages before."""
    differs = {fact.stage for fact in facts if fact.outcome is Outcome.DIFFERS}
    if Stage.SELECTION in differs or changed[Effect.RECORD]:
        yield unknown(_L, "loss", "The update would see other trajectories, whose log-probs were not recorded.")
    elif Stage.REWARD in differs:
        yield unknown(_L, "loss", "The advantages of other rewards are not computed.")
    elif changed[Effect.ADVANTAGES] or changed[Effect.LOSS]:
        yield from loss_facts(recorded, other.algorithm, has_new_advantages=bool(changed[Effect.ADVANTAGES]))


def loss_facts(recorded: RecordedStep, config: ExGRPOConfig, has_new_advantages: bool = False) -> Iterator[Fact]:
    """Yield what the loss adds up in each mini-batch, and the metrics of the step."""
    seen = recorded.line.get(MINI_BATCHES)
    if not seen:
        yield unknown(_L, "loss", _NOT_SEEN)
        return
    try:
        objective = build_objective(config, bool(recorded.line["is_replay_open"]))
        groups = _groups(recorded, config, has_new_advantages)
        weigh_tokens(groups, config, objective.correction)
        batches = _mini_batches(recorded, seen, groups, config)
        inputs = [list(_inputs(recorded, batch, objective)) for batch in batches]
    except (InputError, NotRecordedError) as error:  # such as code that this machine does not allow
        yield unknown(_L, "loss", str(error))
        return
    from exgrpo_core.policy_optimization.objective import MiniBatchSizes, exgrpo_loss, merge_sums, summarize_sums

    all_sums, rounding = [], []
    for number, (batch, parts) in enumerate(zip(batches, inputs, strict=True), start=1):
        sizes = MiniBatchSizes(batch.num_trajectories, batch.num_tokens)
        all_sums.append(merge_sums([exgrpo_loss(part, objective, sizes).sums for part in parts]))
        rounding.append(_rounding(batch, parts, objective))
        was = seen[number - 1]["sums"]
        counts = [{_COUNTS[name]: values[name] for name in _COUNTS} for values in (was, all_sums[-1])]
        metrics = [summarize_sums([values], 1) for values in (was, all_sums[-1])]
        for fact in _metric_facts(counts[0] | metrics[0], counts[1] | metrics[1], rounding[-1]):
            yield dataclasses.replace(fact, mini_batch=number)
    computed = summarize_sums(all_sums, len(seen)) | {
        _NUM_TOKENS: float(sum(part.log_probs.numel() for part in chain(*inputs)))
    }
    was = recorded.line["metrics"]
    if _GAP in was:
        fresh = [item for group in groups for item in group.trajectories]
        own = [item.log_probs - item.sampler_log_probs for item in fresh if item.sampler_log_probs is not None]
        seen_first = ((part.log_probs - part.behavior_log_probs)[~part.is_replayed].numpy() for part in inputs[0])
        gaps = np.abs(np.concatenate(own or [*seen_first]), dtype=np.float64)
        computed[_GAP] = float(gaps.sum()) / max(1, gaps.size)
    names = {*computed, *(name for name in was if name.startswith(("loss/", "ratio/")))}
    yield from _metric_facts({name: was.get(name) for name in names}, computed, sum(rounding) / len(seen))


def _rounding(batch: MiniBatch, parts: Sequence["LossInputs"], objective: ObjectiveSettings) -> float:
    """Return how much the policy term can depend on the order in which a trajectory's tokens are added up."""
    from exgrpo_core.policy_optimization.objective import MiniBatchSizes, exgrpo_loss

    if objective.aggregation is not LossAggregation.TOKEN_MEAN:
        return 0.0
    sizes = MiniBatchSizes(batch.num_trajectories, batch.num_tokens)
    positive = [dataclasses.replace(part, advantages=part.advantages.abs()) for part in parts]
    size = sum(abs(float(exgrpo_loss(part, objective, sizes).sums["policy"])) for part in positive)
    return _FLOAT32 * max(row.token_ids.size for row in batch.rows) * size


def _metric_facts(recorded: Mapping[str, Any], computed: Mapping[str, Any], rounding: float) -> Iterator[Fact]:
    for name in sorted({*recorded, *computed}):
        was = None if recorded.get(name) is None else float(recorded[name])
        least = max(_LEAST, rounding) if name in _WITH_POLICY else _LEAST
        tolerance = 0.0 if name in _EXACT else max(_TOLERANCE, least / max(abs(was or 0.0), SMALLEST))
        yield compare(_L, name, was, computed.get(name), tolerance=tolerance)


def _groups(recorded: RecordedStep, config: ExGRPOConfig, has_new_advantages: bool) -> list[RolloutGroup]:
    groups = recorded.rollout_groups(has_tokens=True)
    for item in chain.from_iterable(group.trajectories for group in groups):
        seen = recorded.tokens.get((item.trajectory_id, False), {}).get(SEEN_VALUES[0])
        if seen is not None and not np.isnan(seen[: item.num_prefix_tokens]).all():
            item.num_prefix_tokens = 0  # the plan trained on its prefix
    if has_new_advantages:
        assign_advantages(groups, config)
    else:
        for group, of_group in zip(groups, recorded.groups, strict=True):
            group.advantages = np.array([row.advantage for row in of_group], dtype=np.float32)
    return groups


def _mini_batches(
    recorded: RecordedStep, seen: Sequence[Mapping[str, Any]], groups: Sequence[RolloutGroup], config: ExGRPOConfig
) -> list[MiniBatch]:
    rows = {(row.trajectory_id, row.is_replayed): row for group in groups for row in group_rows(group, config)}
    keys = [
        [*((number, False) for number in one["fresh"]), *((number, True) for number in one["replayed"])] for one in seen
    ]
    missing = next((key for of_one in keys for key in of_one if key not in rows or key not in recorded.tokens), None)
    if missing is not None:
        raise NotRecordedError(f"The record has no tokens of trajectory {missing[0]}.")
    return [MiniBatch([rows[key] for key in of_one]) for of_one in keys]


def _inputs(recorded: RecordedStep, batch: MiniBatch, objective: ObjectiveSettings) -> Iterator["LossInputs"]:
    """Yield what the loss reads of a mini-batch, in parts that fit into memory; one without tokens if none has any."""
    import torch

    from exgrpo_core.policy_optimization.objective import pack_inputs

    rows = rows_with_gradient(batch, objective)
    coefficients = (1.0, objective.entropy_coefficient, objective.kl_coefficient)
    names = [name for name, coefficient in zip(SEEN_VALUES, coefficients, strict=True) if coefficient > 0.0]
    places = np.cumsum([0, *(row.token_ids.size for row in rows)]) // _TOKENS_OF_PART
    for part in np.split(np.arange(len(rows)), np.flatnonzero(np.diff(places[:-1])) + 1):
        of_part = [rows[i] for i in part]
        values = {name: torch.from_numpy(_seen(recorded, of_part, name)) for name in names}
        yield pack_inputs(of_part, **{name.removeprefix("update_"): array for name, array in values.items()})


def _seen(recorded: RecordedStep, rows: Sequence[TrainingRow], name: str) -> Float32Array:
    arrays = [recorded.tokens[row.trajectory_id, row.is_replayed][name] for row in rows]
    for row, array in zip(rows, arrays, strict=True):
        if array is None:
            raise NotRecordedError(f"The update recorded no {name} of trajectory {row.trajectory_id}.")
    parts = [array[array.size - row.token_ids.size :] for row, array in zip(rows, arrays, strict=True)]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.float32)
