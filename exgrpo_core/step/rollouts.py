"""Line 23 of Algorithm 1: rollouts of fresh and of drawn questions, and what fills the places of groups without use."""

from collections.abc import Collection, Sequence

import numpy as np

from exgrpo_core.config import ExGRPOConfig
from exgrpo_core.engine import PolicyEngine, RolloutRequest
from exgrpo_core.experience_management.collection import has_equal_rewards
from exgrpo_core.experience_management.question_selection import bucket_counts
from exgrpo_core.methods.columns import QuestionColumns
from exgrpo_core.methods.protocols import Placement, QuestionSampler
from exgrpo_core.state import ExGRPOState
from exgrpo_core.step.generated import keep_generated
from exgrpo_core.step_report import StepReport
from exgrpo_core.types import RolloutGroup


def roll_out(
    state: ExGRPOState,
    engine: PolicyEngine,
    config: ExGRPOConfig,
    sampler: QuestionSampler,
    fresh: Sequence[int],
    drawn: Collection[int],
    report: StepReport,
) -> tuple[list[RolloutGroup], list[RolloutGroup]]:
    """Return the groups of fresh questions, refills included, and those of drawn ones."""
    requests = [_request(state, index, config.rollouts_per_question - int(index in state.external)) for index in fresh]
    is_whole = sampler.placement.is_whole_group
    requests += [] if is_whole else [_request(state, index, _num_beside(state, config, index)) for index in drawn]
    groups = engine.rollout(requests)
    kept = keep_generated(requests, groups, report)
    num_fresh = sum(bool(group.trajectories) for group in groups[: len(fresh)])
    fresh_groups, drawn_groups = kept[:num_fresh], kept[num_fresh:]
    if is_whole:
        drawn_groups = [RolloutGroup(state.questions[index], []) for index in drawn]
    for _ in range(sampler.num_refills):
        fresh_groups += _refill(state, engine, config, fresh_groups, drawn, report)
    return fresh_groups, drawn_groups


def draw_replays(
    state: ExGRPOState, sampler: QuestionSampler, columns: QuestionColumns, num_wanted: int, report: StepReport
) -> dict[int, float]:
    """Return the questions that are replayed, each with the factor of its replayed trajectories' advantages."""
    draw = sampler.draw(columns, num_wanted, state.rng)
    report.buckets = bucket_counts(state.replay_buffer, draw)
    state.replay_buffer.record_draws(draw.question_indices, state.step)
    weights = [1.0] * draw.question_indices.size if draw.weights is None else draw.weights.tolist()
    return dict(zip(draw.question_indices.tolist(), weights, strict=True))


def draw_after_rollouts(
    state: ExGRPOState,
    config: ExGRPOConfig,
    sampler: QuestionSampler,
    fresh_groups: Sequence[RolloutGroup],
    report: StepReport,
) -> dict[int, float]:
    """Return the questions of replays that depend on the rollouts: fresh ones, or those in the place of fresh ones."""
    is_drawn_now = sampler.placement in (Placement.ADD, Placement.EQUAL_REWARDS)
    if not (config.replays_experience and report.is_replay_open and is_drawn_now):
        return {}
    if sampler.placement is Placement.ADD:
        indices = np.array([group.question.index for group in fresh_groups], dtype=np.int64)
        columns = QuestionColumns(state.replay_buffer, state.step, among=indices)
        return draw_replays(state, sampler, columns, config.num_experiential_wanted, report)
    num_wanted = min(config.num_experiential_wanted, sum(map(has_equal_rewards, fresh_groups)))
    return draw_replays(state, sampler, QuestionColumns(state.replay_buffer, state.step), num_wanted, report)


def place_groups(
    state: ExGRPOState,
    sampler: QuestionSampler,
    fresh_groups: Sequence[RolloutGroup],
    drawn_groups: Sequence[RolloutGroup],
    drawn: Collection[int],
) -> list[RolloutGroup]:
    """Return all groups of the step; those that only replay have no rollouts, and replays beside K have a baseline."""
    groups = [*fresh_groups, *drawn_groups]
    if sampler.placement is Placement.EQUAL_REWARDS:
        groups += [RolloutGroup(state.questions[index], []) for index in drawn]
    for group in fresh_groups if sampler.placement is Placement.ADD else ():
        group.has_two_baselines = group.question.index in drawn
    return groups


def trained_groups(
    config: ExGRPOConfig, sampler: QuestionSampler, groups: Sequence[RolloutGroup]
) -> list[RolloutGroup]:
    """Return the groups of the update, at most B: of more, those of equal rewards are left out, the last ones first."""
    num_left_out = len(groups) - config.batch_size
    if num_left_out <= 0 or not (sampler.num_refills or sampler.placement is Placement.EQUAL_REWARDS):
        return list(groups)
    equal = [i for i, group in enumerate(groups) if not group.has_replay and has_equal_rewards(group)]
    left_out = set(equal[len(equal) - num_left_out :])
    return [group for i, group in enumerate(groups) if i not in left_out]


def _refill(
    state: ExGRPOState,
    engine: PolicyEngine,
    config: ExGRPOConfig,
    groups: Sequence[RolloutGroup],
    drawn: Collection[int],
    report: StepReport,
) -> list[RolloutGroup]:
    """Roll out as many further questions as groups of different rewards are missing, or as there are."""
    used = {*drawn, *(group.question.index for group in groups)}
    num_missing = config.batch_size - len(drawn) - sum(not has_equal_rewards(group) for group in groups)
    num_missing = min(num_missing, len(state.questions) - len(used))
    if num_missing <= 0:
        return []
    draw = state.stream.draw(num_missing, state.skipped_questions(config), used)
    requests = [_request(state, index, config.rollouts_per_question) for index in draw.question_indices]
    return keep_generated(requests, engine.rollout(requests), report)


def _num_beside(state: ExGRPOState, config: ExGRPOConfig, index: int) -> int:
    """Rollouts beside what is replayed of a question: K-1 in the paper, whose r is 1."""
    if config.replays_per_group == 1:
        return config.rollouts_per_question - 1
    num_stored = int(state.replay_buffer.num_stored(np.array([index]))[0])
    return config.rollouts_per_question - min(config.replays_per_group, num_stored)


def _request(state: ExGRPOState, index: int, num_rollouts: int) -> RolloutRequest:
    return RolloutRequest(state.questions[index], num_rollouts)
