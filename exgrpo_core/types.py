"""The nouns of the algorithm: questions, trajectories, experience, groups and tokens in the loss.

Arrays are NumPy, tensors of `TokenRatios` torch; T is a number of response tokens, K of rollouts per question. Nothing
here loads torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

Int32Array = NDArray[np.int32]
Int64Array = NDArray[np.int64]
Float32Array = NDArray[np.float32]
Float64Array = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

PART_PREFIX = "reward/"
"""Beginning of the name under which files and rows have a part of the reward."""
UNASSIGNED = -1
"""Id of a trajectory that the core has not numbered yet."""
SEEN_VALUES = ("update_log_probs", "update_entropies", "reference_log_probs")
"""What the loss reads of each token: under the policy as it is before an optimizer step, and under the reference."""


@dataclass(frozen=True, slots=True)
class Question:
    """One question q of the data set D.

    `index` is its position in D and what the buffer keys on; `question_id` is a hash of its content that stays
    the same across files, runs and backbones. `prompt_ids` (P,) holds the templated prompt's token ids.
    """

    index: int
    question_id: str
    prompt_ids: Int32Array
    prompt_text: str
    answer: str
    metadata: Mapping[str, object] = field(default_factory=dict)


@dataclass(slots=True)
class Trajectory:
    """One response o to a question, with the log-probs of the policy that generated it.

    `token_ids` (T,) are the response tokens as generated, end-of-sequence token included, never re-tokenised.
    `log_probs` (T,) are of the training model at rollout temperature when it was generated (pi_old of its step).
    `entropies` (T,) are full-vocabulary Shannon entropies in nats at the same moment, where the engine kept them.
    `sampler_log_probs` (T,) are those that the tokens were drawn with, where the sampler is another program.
    `trajectory_id` is unique in a run and given by the core; `rollout_step` is the step that it is a fresh rollout of.
    `policy_version` is the number of steps done by the policy that generated it: `rollout_step` - 1, or one less where
    rollouts are generated ahead. Of one that began with a prefix, the first `num_prefix_tokens` are those of trajectory
    `prefix_of`. `reward_parts` are the parts of the reward by name, before their weights.
    """

    question_index: int
    token_ids: Int32Array
    log_probs: Float32Array
    reward: float
    text: str = ""
    verdict: str = ""
    is_truncated: bool = False
    is_valid: bool | None = None
    has_code: bool | None = None
    entropies: Float32Array | None = None
    sampler_log_probs: Float32Array | None = None
    trajectory_id: int = UNASSIGNED
    rollout_step: int = UNASSIGNED
    policy_version: int = UNASSIGNED
    num_prefix_tokens: int = 0
    prefix_of: int = UNASSIGNED
    reward_parts: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_ahead(self) -> bool:
        """Whether it was generated before the update of the step before its own."""
        return 0 <= self.policy_version < self.rollout_step - 1


class Experience(NamedTuple):
    """One stored success: a candidate for replay. A step makes a thousand; a frozen dataclass takes thrice as long.

    `row` is its row in the replay buffer; `behavior_log_probs` (T,) are log pi_past, float32.
    """

    row: int
    trajectory_id: int
    question_index: int
    rollout_step: int
    reward: float
    token_ids: Int32Array
    behavior_log_probs: Float32Array


@dataclass(frozen=True, slots=True)
class TrajectoryScores:
    """Token-level scores of candidates under the current policy at rollout temperature, one array (T_i,) each.

    `log_probs[i]` are log pi_theta of candidate i's tokens, `entropies[i]` full-vocabulary entropies in nats.
    """

    log_probs: list[Float32Array]
    entropies: list[Float32Array]


@dataclass(frozen=True, slots=True)
class Replay:
    """The trajectory o* chosen for a group, with its per-token scores under the current policy."""

    experience: Experience
    old_log_probs: Float32Array
    entropies: Float32Array
    is_external: bool = False
    weight: float = 1.0
    """Factor of its advantage, where a method corrects for how it draws."""
    advantage: float | None = None
    """The advantage that it keeps, where the plan says so."""
    token_factors: Float32Array | None = None
    """Factors (T,) of its advantage at each token, where the correction looks at the whole step; None is 1."""


class Baseline(StrEnum):
    """What the rewards of a group with replays are compared with."""

    TOGETHER = "together"
    """The mean of all of the group (the paper)."""
    APART = "apart"
    """Fresh rollouts with their own mean, replayed trajectories with theirs."""
    KEPT = "kept"
    """Fresh rollouts with their own mean; replayed trajectories keep the advantages that the plan gives."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """The first `num_tokens` tokens of a stored trajectory, at least 1 and less than all.

    `row` is its row of the replay buffer. The tokens are part of the responses that begin with them, and trained on as
    fresh ones only where `is_trained`.
    """

    row: int
    num_tokens: int
    is_trained: bool = False


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """What a method asks for one group of a step: rollouts of a question, and stored trajectories to train on.

    `candidates` (N,), int64, are rows of the replay buffer, oldest first, all of the question. The trajectory selector
    chooses at most `num_replays` of them, at least 1; all are replayed if it is None. `weight` is a factor of the
    replayed trajectories' advantages. `advantages` (N,), float32, belong to `candidates` entry by entry: given with
    `Baseline.KEPT`, else None.

    Allowed are rollouts without candidates, both, and 0 rollouts with candidates, which is a stored group by itself.
    The rollouts begin with `prefix`, if there is one. Their question then neither retires nor changes its bucket.
    Without candidates and with fewer than K rollouts a trajectory from a file joins, if the question has one. Groups of
    a step may differ in size; one of `Baseline.TOGETHER` has two trajectories or more.
    """

    question_index: int
    num_rollouts: int
    candidates: Int64Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    num_replays: int | None = None
    weight: float = 1.0
    baseline: Baseline = Baseline.TOGETHER
    advantages: Float32Array | None = None
    prefix: Prefix | None = None


@dataclass(slots=True)
class RolloutGroup:
    """G_q: the fresh rollouts of one question and, in an experiential group, what is replayed (always last).

    `plan` is what the step's method asked for. `advantages` follow the order of `rewards`: fresh rollouts first, then
    the replayed ones.
    """

    question: Question
    trajectories: list[Trajectory]
    replays: tuple[Replay, ...] = ()
    advantages: Float32Array | None = None
    plan: GroupPlan | None = None

    @property
    def baseline(self) -> Baseline:
        """What its rewards are compared with."""
        return Baseline.TOGETHER if self.plan is None else self.plan.baseline

    @property
    def has_replay(self) -> bool:
        """Whether the group holds a replayed trajectory."""
        return bool(self.replays)

    @property
    def is_helped(self) -> bool:
        """Whether its rollouts began with a part of an old trajectory: they say less of the question."""
        return any(trajectory.num_prefix_tokens for trajectory in self.trajectories)

    @property
    def num_trajectories(self) -> int:
        """Fresh and replayed trajectories: K once a drawn question has its replay."""
        return len(self.trajectories) + len(self.replays)

    @property
    def rewards(self) -> Float32Array:
        """Rewards of the fresh rollouts and then of what is replayed: (K,) in the paper's method."""
        rewards = [trajectory.reward for trajectory in self.trajectories]
        rewards += [replay.experience.reward for replay in self.replays]
        return np.asarray(rewards, dtype=np.float32)

    @property
    def has_equal_rewards(self) -> bool:
        """Whether all rewards are equal: the advantages are 0."""
        rewards = {trajectory.reward for trajectory in self.trajectories}
        rewards.update(replay.experience.reward for replay in self.replays)
        return len(rewards) == 1


@dataclass(frozen=True, slots=True)
class SeenMiniBatch:
    """What an update saw of a mini-batch before its optimizer step.

    `sums` are those of the loss. `tokens` has each trajectory by its id and whether it is replayed; of one with a
    gradient it has those of `SEEN_VALUES` that the loss read, as arrays (T,).
    """

    sums: Mapping[str, float]
    tokens: Mapping[tuple[int, bool], Mapping[str, Float32Array]]


@dataclass(frozen=True, slots=True)
class TokenRatios:
    """Tokens of a micro-batch in the loss, tensors of one shape, packed (N,) or padded (B, T).

    `ratios` are w = pi_theta / pi_behavior, with their gradient; `mask` is True where a token counts, and
    `trajectory_index` numbers the micro-batch's trajectories, which are whole.
    """

    ratios: "torch.Tensor"
    advantages: "torch.Tensor"
    mask: "torch.Tensor"
    trajectory_index: "torch.Tensor"

    def sequence_ratios(self) -> "torch.Tensor":
        """Return exp of the mean log w of each token's trajectory, over the tokens that count."""
        index, is_counted = self.trajectory_index.reshape(-1), self.mask.reshape(-1).to(self.ratios.dtype)
        num_trajectories = int(index.max()) + 1 if index.numel() else 0
        zeros = self.ratios.new_zeros(num_trajectories)
        logs = zeros.index_add(0, index, self.ratios.log().reshape(-1) * is_counted)
        counts = zeros.index_add(0, index, is_counted).clamp(min=1.0)
        return (logs / counts).exp()[index].reshape(self.ratios.shape)
