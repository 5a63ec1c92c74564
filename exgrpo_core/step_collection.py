"""Lines 24 to 30 and 33 of Algorithm 1: store successes, note latest correctness, retire solved questions."""

import numpy as np

from exgrpo_core.config import ExGRPOConfig, RewardKind, ZeroCorrectRule
from exgrpo_core.experience_management.collection import is_solved, num_correct, successes
from exgrpo_core.experience_management.difficulty import correct_bucket, spread_buckets
from exgrpo_core.state import ExGRPOState
from exgrpo_core.step_report import BufferEvent, BufferEventKind, StepReport
from exgrpo_core.types import RolloutGroup


def collect_experience(state: ExGRPOState, config: ExGRPOConfig, report: StepReport) -> None:
    """Retire questions solved in all K trajectories; store the successes of the others and re-bucket them.

    Retiring starts at once, storing with the delayed start. Retired questions never come back into the buffer.
    """
    buckets = group_buckets(report.groups, config)
    collects = config.is_experiential and report.is_started
    for group, bucket in zip(report.groups, buckets, strict=True):
        index = group.question.index
        if config.reward_kind is RewardKind.BINARY and is_solved(group):
            _retire(state, report, index)
        elif collects and index not in state.retired_set:
            _store(state, config, report, group, bucket)
    if collects:
        state.replay_buffer.sync()


def group_buckets(groups: list[RolloutGroup], config: ExGRPOConfig) -> list[int]:
    """Return the bucket 0..K of each group: correct trajectories, or reward spread for continuous rewards."""
    num_rollouts = config.rollouts_per_question
    if config.reward_kind is RewardKind.CONTINUOUS:
        spreads = np.array([group.rewards.std() for group in groups], dtype=np.float64)
        return [int(bucket) for bucket in spread_buckets(spreads, num_rollouts, config.spread_epsilon)]
    return [correct_bucket(num_correct(group), group.rewards.size, num_rollouts) for group in groups]


def _retire(state: ExGRPOState, report: StepReport, index: int) -> None:
    if index in state.retired_set:
        return
    bucket = state.replay_buffer.bucket_of(index)
    if bucket is not None:
        state.replay_buffer.retire(index)
    state.retired_set.add(index)
    report.buffer_events.append(BufferEvent(BufferEventKind.RETIRED, index, None, bucket, None))


def _store(state: ExGRPOState, config: ExGRPOConfig, report: StepReport, group: RolloutGroup, bucket: int) -> None:
    """Insert the group's fresh successes; a buffered question without any moves by the zero-correct rule."""
    buffer, index = state.replay_buffer, group.question.index
    before = buffer.bucket_of(index)
    outcomes = buffer.insert(successes(group, config.reward_kind))
    if not outcomes and before is None:
        return
    has_failed = config.reward_kind is RewardKind.BINARY and bucket == 0
    if has_failed and before is not None and config.zero_correct is ZeroCorrectRule.KEEP_BUCKET:
        bucket = before
    buffer.set_bucket(index, bucket)
    if bucket != before:
        report.buffer_events.append(BufferEvent(BufferEventKind.MOVED, index, None, before, bucket))
    for outcome in outcomes:
        kind = BufferEventKind.DUPLICATE if outcome.is_duplicate else BufferEventKind.INSERTED
        report.buffer_events.append(BufferEvent(kind, index, outcome.trajectory_id, bucket, bucket))
