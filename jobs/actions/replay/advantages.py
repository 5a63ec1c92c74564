"""Stage advantages: those of each group by the run's settings, or by the formulas of the field.

Sources: Dr.GRPO arXiv:2503.20783; GRPO arXiv:2402.03300; RLOO arXiv:2402.14740; REINFORCE++ arXiv:2501.03262. TRL adds
1e-4 to the deviation, verl 1e-6; `scale_rewards="batch"` is TRL's. Deviations are of K - 1 in both.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from exgrpo.db.rows.replays import StepTrajectoryRow
from exgrpo.jobs.actions.replay.facts import Fact, Outcome, Stage, compare, named, unknown
from exgrpo.jobs.actions.replay.recorded_step import RecordedStep, part_of
from exgrpo_core.config import ExGRPOConfig
from exgrpo_core.methods.loading import QUESTIONS
from exgrpo_core.methods.protocols import QuestionSampler
from exgrpo_core.policy_optimization.mixed_batch import assign_advantages
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
