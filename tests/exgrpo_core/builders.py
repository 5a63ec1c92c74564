"""Small questions, trajectories, groups and configurations for tests of the core."""

import dataclasses

import numpy as np

from exgrpo_core.config import ExGRPOConfig
from exgrpo_core.types import Experience, Question, Replay, RolloutGroup, Trajectory


def small_config(**changes):
    base = ExGRPOConfig(
        batch_size=8,
        mini_batch_size=4,
        rollouts_per_question=4,
        max_response_tokens=16,
        start_pass_rate=None,
        entropy_coefficient=0.0,
    )
    return dataclasses.replace(base, **changes)


def question(index):
    return Question(index, f"q{index}", np.array([1, 2, index], dtype=np.int32), f"question {index}", "7")


def trajectory(index, tokens, reward, log_probs=None, trajectory_id=-1):
    ids = np.asarray(tokens, dtype=np.int32)
    probs = np.full(ids.size, -0.5) if log_probs is None else log_probs
    return Trajectory(index, ids, np.asarray(probs, dtype=np.float32), reward, trajectory_id=trajectory_id)


def replay(index, tokens, behavior, old, reward=1.0):
    ids = np.asarray(tokens, dtype=np.int32)
    stored = Experience(0, 99, index, 1, reward, ids, np.asarray(behavior, dtype=np.float32))
    return Replay(stored, np.asarray(old, dtype=np.float32), np.zeros(ids.size, dtype=np.float32))


def group(index, rewards, replayed=None):
    trajectories = [trajectory(index, [3, 4 + i], reward) for i, reward in enumerate(rewards)]
    return RolloutGroup(question(index), trajectories, () if replayed is None else (replayed,))
