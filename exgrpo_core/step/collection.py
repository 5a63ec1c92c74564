"""Lines 24 to 30 and 33 of Algorithm 1: what of a group is kept, in which bucket, and which questions retire."""

from dataclasses import replace
from itertools import islice

import numpy as np

from exgrpo_core.config import ExGRPOConfig, LogProbRefresh, RetiredRule, RewardKind, ZeroCorrectRule
from exgrpo_core.policy_optimization.importance import stored_log_probs
from exgrpo_core.state import ExGRPOState
from exgrpo_core.step_report import BufferEvent, BufferEventKind, StepReport
from exgrpo_core.sums import CORRECT_REWARD
from exgrpo_core.types import Float64Array, Int64Array, RolloutGroup, Trajectory


def collect_experience(state: ExGRPOState, config: ExGRPOConfig, report: StepReport) -> None:
    """Retire questions solved in all K trajectories; store the successes of the others and re-bucket them.

    Retiring begins at once, storing with the delayed start. Retired questions never come back into the buffer.
    """
    stored: list[tuple[RolloutGroup, int]] = []
    collects = config.replays_experience and report.is_replay_open
    retires = config.reward_kind is RewardKind.BINARY and config.retired is not RetiredRule.NEVER
    groups = [group for group in report.groups if group.trajectories]
    buckets = group_buckets(groups, config)
    known = [
        (group.question.index, bucket) for group, bucket in zip(groups, buckets, strict=True) if not group.is_helped
    ]
    state.replay_buffer.history.record_correct([index for index, _ in known], [bucket for _, bucket in known])
    for group, bucket in zip(groups, buckets, strict=True):
        if retires and is_solved(group):
            _retire(state, report, group.question.index)
        elif collects and group.question.index not in state.retired_set:
            stored.append((group, bucket))
    if collects:
        num_refreshed = _store(state, config, report, stored)
        if config.refresh is LogProbRefresh.ON_REPLAY:
            num_refreshed = _refresh_replayed(state, report)
        if config.refresh is not LogProbRefresh.NEVER:
            report.metrics["experience/num_refreshed"] = float(num_refreshed)
        if config.limits_buffer:
            _evict(state, config, report)


def _evict(state: ExGRPOState, config: ExGRPOConfig, report: StepReport) -> None:
    """Let trajectories leave that are too old for the next step, or too many."""
    buffer, events = state.replay_buffer, report.buffer_events
    oldest_step = 0 if config.buffer_age is None else report.step + 1 - config.buffer_age
    before = buffer.buckets_of(np.arange(len(state.questions))).tolist()
    evicted = buffer.evict(oldest_step, config.buffer_capacity)
    last = dict(evicted)
    for index, trajectory_id in evicted:
        bucket = buffer.bucket_of(index) if trajectory_id == last[index] else before[index]
        events.append(BufferEvent(BufferEventKind.EVICTED, index, trajectory_id, before[index], bucket))


def group_buckets(groups: list[RolloutGroup], config: ExGRPOConfig) -> list[int]:
    """Return the bucket 0..K of each group: correct trajectories, or reward spread for continuous rewards."""
    num_rollouts = config.rollouts_per_question
    if config.reward_kind is RewardKind.CONTINUOUS:
        spreads = np.array([group.rewards.std() for group in groups], dtype=np.float64)
        return [int(bucket) for bucket in spread_buckets(spreads, num_rollouts, config.spread_epsilon)]
    return [correct_bucket(num_correct(group), group.num_trajectories, num_rollouts) for group in groups]


def _retire(state: ExGRPOState, report: StepReport, index: int) -> None:
    if index in state.retired_set:
        return
    bucket = state.replay_buffer.bucket_of(index)
    if bucket is not None:
        state.replay_buffer.retire(index)
    state.retired_set.add(index)
    report.buffer_events.append(BufferEvent(BufferEventKind.RETIRED, index, None, bucket, None))


def _store(state: ExGRPOState, config: ExGRPOConfig, report: StepReport, stored: list[tuple[RolloutGroup, int]]) -> int:
    """Insert what the method keeps of the groups, all at once, and move the questions into their buckets.

    Return how many stored trajectories got the log-probs of an equal one.
    """
    buffer, method = state.replay_buffer, state.strategies.method
    choices = [(*item, method.keep(item[0], successes(item[0], config.reward_kind))) for item in stored]
    kept = [
        (group, bucket, [_with_behavior(trajectory, config) for trajectory in trajectories])
        for group, bucket, trajectories in choices
        if trajectories is not None
    ]
    before = [buffer.bucket_of(group.question.index) for group, _, _ in kept]
    new = [trajectory for _, _, trajectories in kept for trajectory in trajectories]
    inserted = buffer.insert(new, keeps_duplicates=method.keeps_duplicates)
    outcomes = iter(inserted)
    latest = [group for group, _, _ in kept if not group.is_helped]
    buffer.history.record_rewards([group.question.index for group in latest], [group.rewards for group in latest])
    for (group, bucket, trajectories), old in zip(kept, before, strict=True):
        if trajectories or old is not None:
            moved_to = next_bucket(config, bucket, old, group.is_helped)
            _move(state, report, group.question.index, old, moved_to)
            for outcome in islice(outcomes, len(trajectories)):
                kind = BufferEventKind.DUPLICATE if outcome.is_duplicate else BufferEventKind.INSERTED
                event = BufferEvent(kind, group.question.index, outcome.trajectory_id, moved_to, moved_to)
                report.buffer_events.append(event)
    if config.refresh is not LogProbRefresh.ON_DUPLICATE:
        return 0
    equal = [(outcome.row, item.log_probs) for outcome, item in zip(inserted, new, strict=True) if outcome.is_duplicate]
    return buffer.refresh([row for row, _ in equal], [log_probs for _, log_probs in equal], report.step)


def _refresh_replayed(state: ExGRPOState, report: StepReport) -> int:
    """Give replayed trajectories of questions that are still buffered the log-probs before the update."""
    buffer = state.replay_buffer
    replays = [replay for group in report.groups for replay in group.replays if not replay.is_external]
    kept = [replay for replay in replays if buffer.bucket_of(replay.experience.question_index) is not None]
    rows = [replay.experience.row for replay in kept]
    return buffer.refresh(rows, [replay.old_log_probs for replay in kept], report.step)


def _with_behavior(trajectory: Trajectory, config: ExGRPOConfig) -> Trajectory:
    """Return what to store of a success: itself, or with the log-probs that replay's ratios are to be against."""
    behavior = stored_log_probs(trajectory, config)
    return trajectory if behavior is trajectory.log_probs else replace(trajectory, log_probs=behavior)


def next_bucket(config: ExGRPOConfig, bucket: int, old: int | None, is_helped: bool = False) -> int:
    """Return the bucket to move into: for a buffered question without any success the zero-correct rule decides.

    A buffered question whose rollouts were helped stays where it is.
    """
    keeps = config.zero_correct is ZeroCorrectRule.KEEP_BUCKET and config.reward_kind is RewardKind.BINARY
    return old if old is not None and (is_helped or (keeps and bucket == 0)) else bucket


def _move(state: ExGRPOState, report: StepReport, index: int, old: int | None, bucket: int) -> None:
    state.replay_buffer.set_bucket(index, bucket)
    if bucket != old:
        report.buffer_events.append(BufferEvent(BufferEventKind.MOVED, index, None, old, bucket))


def correct_bucket(num_correct: int, group_size: int, rollouts_per_question: int) -> int:
    """Return the bucket of a group with `num_correct` correct trajectories: k itself where the group holds K.

    A group of another size is scaled to K and rounded half to even, but only one without any success is in bucket 0
    and only one without any failure in bucket K.
    """
    if group_size == rollouts_per_question or num_correct == 0:
        return num_correct
    if num_correct == group_size:
        return rollouts_per_question
    scaled = round(num_correct * rollouts_per_question / group_size)
    return min(max(scaled, 1), rollouts_per_question - 1)


def spread_buckets(reward_std: Float64Array, rollouts_per_question: int, epsilon: float) -> Int64Array:
    """Return buckets 0..K of continuous rewards by their spread within a question, min-max scaled over the batch.

    round(K (sigma_q - sigma_min) / max(sigma_max - sigma_min, epsilon)); a half rounds to the even bucket, which is
    NumPy's rule and the only point that the paper leaves open. Source: appendix, "Extension to RL with Continuous
    Rewards".

    Args:
        reward_std: Standard deviation of the rewards of each question of the batch, at least 0.
        rollouts_per_question: K.
        epsilon: Smallest divisor, above 0: it keeps a batch without any difference in spread in bucket 0.
    """
    low, high = reward_std.min(), reward_std.max()
    scaled = (reward_std - low) / max(high - low, epsilon)
    buckets: Int64Array = np.rint(scaled * rollouts_per_question).astype(np.int64)
    return buckets


def num_correct(group: RolloutGroup) -> int:
    """Return s of Algorithm 1: the correct trajectories of a group, the replayed one counted."""
    num_fresh = sum(trajectory.reward >= CORRECT_REWARD for trajectory in group.trajectories)
    return num_fresh + sum(replay.experience.reward >= CORRECT_REWARD for replay in group.replays)


def is_solved(group: RolloutGroup) -> bool:
    """Whether every trajectory of the group is correct, without help: its question is retired."""
    return not group.is_helped and num_correct(group) == group.num_trajectories > 0


def successes(group: RolloutGroup, reward_kind: RewardKind) -> list[Trajectory]:
    """Return the fresh trajectories to store: the correct ones, or those above the group's mean reward.

    The mean of continuous rewards is over the whole group, the replayed trajectory included.
    """
    if reward_kind is RewardKind.BINARY:
        return [trajectory for trajectory in group.trajectories if trajectory.reward >= CORRECT_REWARD]
    mean = float(np.mean(group.rewards, dtype=np.float64))
    return [trajectory for trajectory in group.trajectories if float(np.float32(trajectory.reward)) > mean]
