"""ExGRPO, the algorithm: experience management and experiential policy optimization.

The public names load on first use, so that importing the package loads no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from exgrpo_core.algorithm import exgrpo_step as exgrpo_step
    from exgrpo_core.config import ExGRPOConfig as ExGRPOConfig
    from exgrpo_core.engine import PolicyEngine as PolicyEngine
    from exgrpo_core.experience_management.bucket_sampler import bucket_probabilities as bucket_probabilities
    from exgrpo_core.experience_management.bucket_sampler import sample_buckets as sample_buckets
    from exgrpo_core.experience_management.question_stream import RetiredSet as RetiredSet
    from exgrpo_core.experience_management.replay_buffer import ReplayBuffer as ReplayBuffer
    from exgrpo_core.policy_optimization.importance import importance_ratios as importance_ratios
    from exgrpo_core.policy_optimization.importance import shape_ratio as shape_ratio
    from exgrpo_core.policy_optimization.mixed_batch import group_advantages as group_advantages
    from exgrpo_core.policy_optimization.objective import exgrpo_loss as exgrpo_loss
    from exgrpo_core.state import DelayedStart as DelayedStart
    from exgrpo_core.state import ExGRPOState as ExGRPOState
    from exgrpo_core.types import Question as Question
    from exgrpo_core.types import RolloutGroup as RolloutGroup
    from exgrpo_core.types import Trajectory as Trajectory

_HOME = {
    "ExGRPOConfig": "config",
    "ExGRPOState": "state",
    "exgrpo_step": "algorithm",
    "PolicyEngine": "engine",
    "ReplayBuffer": "experience_management.replay_buffer",
    "RetiredSet": "experience_management.question_stream",
    "DelayedStart": "state",
    "bucket_probabilities": "experience_management.bucket_sampler",
    "sample_buckets": "experience_management.bucket_sampler",
    "group_advantages": "policy_optimization.mixed_batch",
    "importance_ratios": "policy_optimization.importance",
    "shape_ratio": "policy_optimization.importance",
    "exgrpo_loss": "policy_optimization.objective",
    "Trajectory": "types",
    "Question": "types",
    "RolloutGroup": "types",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_HOME)
