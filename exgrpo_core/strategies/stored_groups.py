"""Methods that replay a stored group as a whole, as it was rolled out: Trinity-RFT's queue and TRL's replay buffer.

Trinity. Source: `LinearDecayPriority` and `AsyncPriorityQueue` of Trinity-RFT (trinity/buffer/storage/queue.py): an
item is the group that a task wrote; reading it counts a use and puts it back after a cooldown; decay is 2 there; of
equal priorities the item that was put first is read first. Assumed: a model version is a step; a question's newest
group stands for it; the cooldown is in steps, not seconds; rho is the share of such groups, where the original reads
all of its batch from the queue; nothing is dropped, which matters only if the queue is longer than its capacity; groups
without a success, which have no gradient, wait until the question has one.

TRL. Source: `GRPOWithReplayBufferTrainer` of TRL (trl/experimental/grpo_with_replay_buffer, until trl#7132): groups
with variance are kept, scored by sum |A| times the standard deviation of their rewards, at most 64 of the highest
score; a group without variance is replaced by one drawn in proportion to its score, with its old log-probs. CLIP is on
both (`off_policy_correction: clip`). Assumed: a question's newest group stands for it, so one draw has no group twice,
where TRL draws with replacement from a buffer too small; this step's groups can be drawn from the next step on, where
TRL stores them before it draws; |A| is the one trained on; rho bounds the share of replaced groups.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from exgrpo_core.errors import Mistake
from exgrpo_core.methods.about import REPLAYS_ONLY, About, Needs
from exgrpo_core.methods.columns import QuestionColumns, QuestionDraw
from exgrpo_core.methods.protocols import OpenStep, ReplayMethod
from exgrpo_core.methods.ranges import Count, NotNegative
from exgrpo_core.policy_optimization.mixed_batch import STD_EPSILON
from exgrpo_core.types import GroupPlan, RolloutGroup, Trajectory


@dataclass(frozen=True, slots=True)
class StoredGroups(ReplayMethod):
    """A drawn question's newest stored group takes the place of a fresh question, without rollouts."""

    keeps_duplicates: ClassVar[bool] = True
    needs: ClassVar[Needs] = {"refresh": ("never", "replays groups of one step")}
    replaces_fresh: ClassVar[bool] = True

    @abstractmethod
    def draw(self, questions: QuestionColumns, num_questions: int, rng: np.random.Generator) -> QuestionDraw:
        """Return at most `num_questions` different questions."""

    def plan(self, step: OpenStep) -> Iterator[Sequence[GroupPlan]]:
        """Yield stored groups in the place of fresh questions."""
        drawn = step.draw(self.draw, step.num_wanted)
        yield step.fresh(step.batch_size - len(drawn), drawn) + self.plan_replays(step, drawn)

    def keep(self, group: RolloutGroup, successes: Sequence[Trajectory]) -> Sequence[Trajectory] | None:
        """Return everything."""
        del successes
        return group.trajectories

    def plan_replays(self, step: OpenStep, drawn: Mapping[int, float]) -> list[GroupPlan]:
        """Plan the newest stored group of each drawn question: what was rolled out with its newest trajectory."""
        plans = []
        for index, weight in drawn.items():
            stored = step.stored(index)
            is_newest = stored.rollout_steps == stored.rollout_steps[-1]
            plans.append(GroupPlan(index, 0, stored.rows[is_newest], weight=weight))
        return plans

    def find_mistakes(self, settings: object) -> Iterator[Mistake]:
        """Yield a sentence where no step would have rollouts."""
        if self.replaces_fresh and getattr(settings, "experience_ratio", 0.0) == 1.0:
            reason = f"{self.name} replays groups without rollouts: no step would have any"
            yield Mistake(f"expected less than 1, since {reason}.", "experience_ratio")


@dataclass(frozen=True, slots=True)
class Trinity(StoredGroups):
    """The highest of newest step - decay * replays, none within the cooldown after its last use."""

    name: ClassVar[str] = "trinity"
    about: ClassVar[About | None] = About(
        "Trinity", "Trinity-RFT's code", "newest, least used", "whole stored group", "clipped ratio", REPLAYS_ONLY,
    )  # fmt: skip
    decay: NotNegative = 2.0
    cooldown_steps: Count = 1
    """Steps from a use to the next possible one."""

    def draw(self, questions: QuestionColumns, num_questions: int, rng: np.random.Generator) -> QuestionDraw:
        """Return the questions of highest priority; nothing is random."""
        del rng
        is_new = questions.last_draw_steps <= questions.newest_rollout_steps
        is_ready = is_new | (questions.step - questions.last_draw_steps >= self.cooldown_steps)
        priorities = questions.newest_rollout_steps - self.decay * questions.newest_num_replays
        order = np.lexsort((questions.newest_rollout_steps, -priorities))
        chosen = order[is_ready[order]][:num_questions]
        return questions.take(questions.indices[chosen], is_ready / max(is_ready.sum(), 1))


@dataclass(frozen=True, slots=True)
class TrlReplay(StoredGroups):
    """Stored groups in proportion to sum |A| times standard deviation replace groups whose rewards are all equal."""

    name: ClassVar[str] = "trl_replay"
    about: ClassVar[About | None] = About(
        "TRL replay", "TRL's code", "large, varied advantages", "whole stored group", "clipped ratio",
        REPLAYS_ONLY | {"experience_ratio": 1.0},
    )  # fmt: skip
    replaces_fresh: ClassVar[bool] = False
    rollouts_per_question: int
    normalize_by_std: bool
    capacity: Count = 64
    """Groups of the highest scores that are kept."""

    def plan(self, step: OpenStep) -> Iterator[Sequence[GroupPlan]]:
        """Yield B fresh questions, then a stored group for each without a gradient, which the update leaves out."""
        yield step.fresh(step.batch_size)
        num_equal = sum(group.has_equal_rewards for group in step.groups)
        yield self.plan_replays(step, step.draw(self.draw, min(step.num_wanted, num_equal)))

    def keep(self, group: RolloutGroup, successes: Sequence[Trajectory]) -> Sequence[Trajectory] | None:
        """Return all of a group whose rewards differ."""
        del successes
        return None if group.has_equal_rewards else group.trajectories

    def draw(self, questions: QuestionColumns, num_questions: int, rng: np.random.Generator) -> QuestionDraw:
        """Return questions whose newest stored group is replayed."""
        sizes = questions.reward_deviations / (questions.reward_stds + STD_EPSILON if self.normalize_by_std else 1.0)
        scores = self.rollouts_per_question * sizes * questions.reward_stds
        # Of equal scores the older group stays.
        order = np.lexsort((questions.newest_rollout_steps, -scores))
        scores[order[int(self.capacity) :]] = 0.0
        return questions.draw(scores, num_questions, rng)
