"""Stage advantages: those of each group by the run's settings, or by the formulas of the field, with those of the loss.

Sources: Dr.GRPO arXiv:2503.20783; GRPO arXiv:2402.03300; RLOO arXiv:2402.14740; REINFORCE++ arXiv:2501.03262. TRL adds
1e-4 to the deviation, verl 1e-6; `scale_rewards="batch"` is TRL's. Deviations are of K - 1 in both. The loss: mean of
sequence means GRPO; mean over tokens DAPO arXiv:2503.14476; a constant divisor Dr.GRPO. The term of a token is PPO's,
arXiv:1707.06347, with a ratio of 1 where the log-probs that the update saw are not recorded.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from exgrpo.db.queries.metrics import metric_series
from exgrpo.db.rows.replays import StepTrajectoryRow
from exgrpo.jobs.actions.replay.facts import Fact, Outcome, Stage, compare, named, unknown
from exgrpo.jobs.actions.replay.recorded_step import RecordedStep, part_of
from exgrpo.jobs.specs.any_job import RecordedSpec
from exgrpo_core.config import ExGRPOConfig
from exgrpo_core.methods.loading import QUESTIONS
from exgrpo_core.methods.protocols import QuestionSampler
from exgrpo_core.policy_optimization.mixed_batch import assign_advantages
from exgrpo_core.recording.run import flat
from exgrpo_core.types import Baseline, Float64Array

_A = Stage.ADVANTAGES
_TOLERANCE = 3e-5
"""Relative: recorded advantages are float32."""
Rewards = list[Float64Array]
"""The rewards (K,) of each group of a step."""


def advantage_facts(recorded: RecordedStep, config: ExGRPOConfig) -> list[Fact]:
    """Return a fact for each trajectory of each group, computed as the run computes them, bit for bit."""
    rows, groups, size = recorded.groups, recorded.rollout_groups(), config.rollouts_per_question
    bad = next((group for group in groups if group.num_trajectories != size), None)
    if bad is not None and isinstance(part_of(QUESTIONS, config), QuestionSampler):
        return [compare(_A, "group size", bad.num_trajectories, size, question=bad.question.index)]
    if groups:
        assign_advantages(groups, config)
    facts = []
    for of_group, group in zip(rows, groups, strict=True):
        computed = [] if group.advantages is None else group.advantages.tolist()
        if group.baseline is Baseline.KEPT:
            note = "A replayed trajectory keeps the advantage that its method gives, which this does not compute."
            facts.append(unknown(_A, "kept advantages", note, group.question.index))
            of_group, computed = of_group[: len(group.trajectories)], computed[: len(group.trajectories)]
        for row, value in zip(of_group, computed, strict=True):
            where = {"question": row.question_index, "trajectory": row.trajectory_id}
            facts.append(compare(_A, "advantage", row.advantage, value, **where))
    return facts


def formula_facts(recorded: RecordedStep) -> list[Fact]:
    """Return which formulas give the recorded advantages of all groups, or the first group that none gives."""
    groups = [rows for rows in recorded.groups if len(rows) > 1]
    rewards, advantages = _values(groups, "reward"), _values(groups, "advantage")
    for name, values in (("rewards", rewards), ("advantages", advantages)):
        if any(np.isnan(of_group).any() for of_group in values):
            key = {"rewards": "reward", "advantages": "advantage"}[name]
            note = (
                f"The {name} were not recorded: `run.log(step, trajectories=[{{..., {key!r}: value}}])` records them."
            )
            return [unknown(_A, "formula of advantages", note)]
    if not groups:
        note = "No group of two or more: `run.log(step, trajectories=[{..., 'group': name}])` records its name."
        return [unknown(_A, "formula of advantages", note)]
    if not any(of_group.any() for of_group in advantages) and not any(np.ptp(of_group) for of_group in rewards):
        note = "Each group has equal rewards and advantages of 0, which every formula gives."
        return [unknown(_A, "formula of advantages", note)]
    found = {name: formula(rewards) for name, formula in FORMULAS.items()}
    fits = {name: [_fits(*pair) for pair in zip(advantages, of_one, strict=True)] for name, of_one in found.items()}
    whole = [name for name, of_groups in fits.items() if all(of_groups)]
    if whole:
        return [named(_A, "formula of advantages", "Advantages are", whole, len(groups))]
    nearest = max(fits, key=lambda name: sum(fits[name]))
    first = fits[nearest].index(False)
    fact = compare(
        _A, "formula of advantages", advantages[first], found[nearest][first], tolerance=_TOLERANCE,
        question=groups[first][0].question_index,
    )  # fmt: skip
    row = groups[first][fact.token or 0]
    num_given = sum(fits[nearest])
    note = (
        f"No formula gives all groups; nearest is {nearest}, which gives {num_given} of {len(groups)} groups."
        if num_given
        else f"No formula gives any of the groups; the values computed here are {nearest}."
    )
    return [
        Fact(
            _A, fact.compared, Outcome.DIFFERS, row.question_index, row.trajectory_id, None, fact.recorded,
            fact.computed, fact.difference, len(groups), note, num_different=len(groups) - num_given,
        )
    ]  # fmt: skip


def _values(groups: Sequence[Sequence[StepTrajectoryRow]], name: str) -> Rewards:
    return [np.array([getattr(row, name) for row in rows], dtype=np.float64) for rows in groups]


def _fits(recorded: Float64Array, computed: Float64Array) -> bool:
    return bool(np.allclose(recorded, computed, rtol=_TOLERANCE, atol=_TOLERANCE))


def _centered(rewards: Rewards) -> Rewards:
    return [of_group - of_group.mean() for of_group in rewards]


def _by_group(rewards: Rewards, ddof: int, epsilon: float) -> Rewards:
    return [(of_group - of_group.mean()) / (of_group.std(ddof=ddof) + epsilon) for of_group in rewards]


def _by_batch(rewards: Rewards, values: Rewards, epsilon: float) -> Rewards:
    """Return values over the deviation of all rewards of the step."""
    deviation = np.concatenate(rewards).std(ddof=1) + epsilon
    return [of_group / deviation for of_group in values]


def _leave_one_out(rewards: Rewards) -> Rewards:
    return [of_group.size / (of_group.size - 1) * (of_group - of_group.mean()) for of_group in rewards]


def _whitened(values: Rewards) -> Rewards:
    """Return values minus their mean over the step, over their deviation there."""
    together = np.concatenate(values)
    return [(of_group - together.mean()) / (together.std(ddof=1) + 1e-8) for of_group in values]


FORMULAS: dict[str, Callable[[Rewards], Rewards]] = {
    "reward - mean (Dr.GRPO; GRPO without the standard deviation)": _centered,
    **{
        f"(reward - mean) / (deviation + {epsilon:g}), {word} deviation (GRPO)": partial(
            _by_group, ddof=ddof, epsilon=epsilon
        )
        for word, ddof in (("sample", 1), ("population", 0))
        for epsilon in (1e-6, 1e-4, 1e-8)
    },
    "reward - mean of the others (RLOO)": _leave_one_out,
    "(reward - group mean) / (deviation of the batch + 0.0001) (TRL, scale_rewards=batch)": lambda rewards: _by_batch(
        rewards, _centered(rewards), 1e-4
    ),
    "batch-normalised rewards (REINFORCE++)": _whitened,
    "batch-normalised rewards - group mean (REINFORCE++ with baseline)": lambda rewards: _whitened(_centered(rewards)),
    "rewards (REINFORCE without a baseline)": lambda rewards: rewards,
}
"""From the rewards of all groups of a step to their advantages, by name."""


COMPARED = "loss aggregation"
_LOSSES = ("loss", "train/loss", "actor/pg_loss", "policy_loss")
"""Metrics of the policy loss, the first one that is there."""
_LENGTHS = ("max_completion_length", "max_response_length", "max_response_tokens", "max_new_tokens", "max_tokens")
"""Settings with a number by which Dr.GRPO can divide."""
_CLIPS = (("epsilon", "clip_ratio_low", "clip_ratio", "clip_epsilon"), ("epsilon_high", "clip_ratio_high"))
_CLIP = 0.2
_LOSS_TOLERANCE, _LEAST = 1e-4, 2e-6
"""Relative to the loss, and to the mean size of a token's term: losses are sums of float32 numbers."""
_DECIMALS = 4
"""To which some trainers round the loss."""


def aggregation_facts(recorded: RecordedStep) -> list[Fact]:
    """Return which aggregations of all trajectories of the step give its loss, or what was not recorded for that."""
    rows = [row for row in recorded.trajectories if not row.is_replayed]
    points = metric_series(recorded.database, recorded.run_id, _LOSSES, None)
    losses = (point.value for name in _LOSSES for point in points[name] if point.step == recorded.step)
    loss = next(losses, None)
    if loss is None:
        return [_missing("The loss was not recorded: `run.log(step, {'loss': value})` records it.")]
    for words, name in (("Advantages", "advantage"), ("Numbers of tokens", "num_tokens")):
        if np.isnan(np.array([getattr(row, name) for row in rows], dtype=np.float64)).any():
            note = f"{words} were not recorded: `run.log(step, trajectories=[{{..., {name!r}: value}}])` records them."
            return [_missing(note)]
    if not any(row.advantage for row in rows):
        return [_missing("Each advantage is 0, so every aggregation gives 0.")]
    spec = recorded.run.job_spec()
    config = dict(flat(spec.config)) if isinstance(spec, RecordedSpec) else {}
    counts = np.array([row.num_tokens for row in rows], dtype=np.float64)
    plain = -counts * [row.advantage for row in rows]
    seen = _seen_terms(recorded, rows, config)
    terms = plain if seen is None else seen
    size = float(np.abs(plain).sum() / counts.sum())
    rounding = 0.5 * 10.0**-_DECIMALS if loss and round(loss, _DECIMALS) == loss else 0.0
    found = dict(_aggregations(terms, counts, config))
    least = max(_LOSS_TOLERANCE * abs(loss), _LEAST * size, rounding)
    fits = [name for name, value in found.items() if abs(value - loss) <= least]
    if fits:
        return [named(Stage.LOSS, COMPARED, "Loss is the", fits, 1)]
    nearest = min(found, key=lambda name: abs(found[name] - loss))
    why = (
        "It can have a KL penalty, an entropy bonus or another objective than PPO's."
        if seen is not None
        else "If the update saw other log-probs than the rollout, as after a first mini-batch, "
        "`run.log(step, trajectories=[{..., 'log_probs': values, 'update_log_probs': values}])` records both."
    )
    return [_missing(f"No aggregation gives {loss:.6g}; nearest is the {nearest} with {found[nearest]:.6g}. {why}")]


def _missing(note: str) -> Fact:
    return unknown(Stage.LOSS, COMPARED, note)


def _aggregations(terms: Float64Array, counts: Float64Array, config: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield aggregations of the sums (B,) of the terms of each trajectory's tokens, by name."""
    yield "mean over all tokens (DAPO; TRL's dapo and bnpo, verl's token-mean)", terms.sum() / counts.sum()
    yield (
        "mean over sequences of the mean over tokens (GRPO; TRL's grpo, verl's seq-mean-token-mean)",
        np.divide(terms, counts, out=np.zeros_like(terms), where=counts > 0).mean(),
    )
    for name, value in config.items():
        if name.rpartition("/")[2] in _LENGTHS and isinstance(value, int) and value > 0:
            words = f"sum over tokens by {name} of {value} and sequence (Dr.GRPO; TRL's dr_grpo)"
            yield words, terms.mean() / value
    yield "mean over sequences of the sum over tokens (verl's seq-mean-token-sum)", terms.mean()


def _seen_terms(
    recorded: RecordedStep, rows: Sequence[StepTrajectoryRow], config: Mapping[str, Any]
) -> Float64Array | None:
    """Return the sum (B,) of the terms of each trajectory, None if it was not recorded what the update saw."""
    values = [recorded.tokens.get((row.trajectory_id, False), {}) for row in rows]
    pairs = [(of_row.get("update_log_probs"), of_row.get("log_probs")) for of_row in values]
    seen = [(new, old) for new, old in pairs if new is not None and old is not None]
    if len(seen) < len(pairs):
        return None
    last = {name.rpartition("/")[2]: value for name, value in config.items()}
    low, high = (next((last[name] for name in names if type(last.get(name)) in {int, float}), None) for names in _CLIPS)
    low = _CLIP if low is None else low
    limits = 1.0 - low, 1.0 + (low if high is None else high)
    sums = []
    for row, (new, old) in zip(rows, seen, strict=True):
        ratios = np.exp(new.astype(np.float64) - old)
        sums.append(-np.minimum(ratios * row.advantage, np.clip(ratios, *limits) * row.advantage).sum())
    return np.array(sums)
