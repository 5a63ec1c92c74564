"""DAPO's dynamic sampling: groups whose rewards are all equal are filled up by further questions. Nothing is replayed.

Source: Yu et al. 2025, "DAPO" (arXiv 2503.14476, section 3.2, Algorithm 1) and verl's recipe, whose scripts allow 10
batches a step. Assumed: a round asks for as many questions as are missing, not for a whole batch, of which the recipe
drops the surplus; rewards are compared, where its scripts compare correctness; where questions or rounds run out,
groups of equal rewards fill the batch, without a gradient, where the recipe ends with an error.
Clip-higher is `clip_epsilon_high: 0.28`; DAPO's token-level loss and its penalty for overlong responses are not here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from exgrpo_core.methods.about import REPLAYS_ONLY, About
from exgrpo_core.methods.protocols import OpenStep, ReplayMethod
from exgrpo_core.methods.ranges import Range
from exgrpo_core.types import GroupPlan


@dataclass(frozen=True, slots=True)
class Dapo(ReplayMethod):
    """Further questions replace groups of equal rewards, in at most `max_refills` rounds; nothing is replayed."""

    name: ClassVar[str] = "dapo"
    about: ClassVar[About | None] = About(
        "DAPO", "2503.14476", "of unequal rewards", "none", "none",
        REPLAYS_ONLY | {"experience_ratio": 0.0, "clip_epsilon_high": 0.28},
    )  # fmt: skip
    max_refills: Annotated[float, Range(least=0, is_whole=True)] = 9

    def plan(self, step: OpenStep) -> Iterator[Sequence[GroupPlan]]:
        """Yield B fresh questions, then as many further ones as groups of different rewards are missing."""
        for _ in range(1 + int(self.max_refills)):
            fresh = step.fresh(step.batch_size - sum(not group.has_equal_rewards for group in step.groups))
            if not fresh:
                return
            yield fresh
