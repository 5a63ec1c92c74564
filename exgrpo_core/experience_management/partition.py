"""Experience partition: the replay buffer as buckets with probabilities (Algorithm 1, lines 5 and 6)."""

from dataclasses import dataclass

from exgrpo_core.config import ExGRPOConfig
from exgrpo_core.experience_management.bucket_sampler import bucket_probabilities
from exgrpo_core.experience_management.difficulty import correctness_rates
from exgrpo_core.experience_management.replay_buffer import ReplayBuffer
from exgrpo_core.types import Float64Array, Int64Array


@dataclass(frozen=True, slots=True)
class Partition:
    """U_k of one step, k = 1..K at positions 0..K-1; bucket 0 is never drawn, so it is not here.

    `probabilities` (K,) are 0 where a bucket is empty and sum to 1 otherwise.
    """

    members: list[Int64Array]
    sizes: Int64Array
    probabilities: Float64Array


def partition(buffer: ReplayBuffer, config: ExGRPOConfig) -> Partition:
    """Return the current buckets, with Gaussian probabilities over the non-empty ones."""
    rates = correctness_rates(config.rollouts_per_question)[1:]
    sizes = buffer.bucket_sizes()[1:]
    probabilities = bucket_probabilities(rates, config.bucket_center, config.bucket_spread) * (sizes > 0)
    total = probabilities.sum()
    members = [buffer.members(bucket) for bucket in range(1, config.rollouts_per_question + 1)]
    return Partition(members, sizes, probabilities / total if total > 0.0 else probabilities)
