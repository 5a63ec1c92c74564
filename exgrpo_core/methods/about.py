"""What a replay method says of itself: its paper, what it changes, and the hyperparameters that it runs with."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from exgrpo_core.errors import Mistake

_ARXIV = re.compile(r"\d{4}\.\d{5}")
_ANTHOLOGY = re.compile(r"\d{4}\.[a-z-]+\.\d+")
REPLAYS_ONLY: dict[str, Any] = {
    "start_pass_rate": None, "retired": "never", "off_policy_correction": "clip", "clipping": "always",
}  # fmt: skip
"""Without the rest of ExGRPO: no delayed start, no retirement, PPO's clipping of all tokens."""


@dataclass(frozen=True, slots=True)
class About:
    """A method in lists: each part has at most three words, and "none" where it replays no trajectory."""

    title: str
    paper: str
    """Its number on arXiv or in the ACL Anthology, or whose code it is."""
    questions: str
    """Which questions are replayed."""
    trajectories: str
    """Which trajectories of them."""
    correction: str
    """How replayed tokens count."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Hyperparameters in which the method differs from ExGRPO's, but for the one that names its part."""

    @property
    def cell(self) -> str:
        """Its name in studies."""
        return self.title.lower().replace(" ", "-")

    @property
    def address(self) -> str | None:
        """Where the paper is read."""
        if _ARXIV.fullmatch(self.paper):
            return f"https://arxiv.org/abs/{self.paper}"
        return f"https://aclanthology.org/{self.paper}/" if _ANTHOLOGY.fullmatch(self.paper) else None


Needs = dict[str, tuple[object, str]]
"""By setting, the only value that goes with a part, and what the part does so that it is the only one."""


class Part:
    """A part of a replay method: a class that a setting of a run names."""

    name: ClassVar[str]
    """What the setting says: `question_selection`, `trajectory_selection` or `off_policy_correction`."""
    about: ClassVar[About | None] = None
    """What lists say of the method that this part makes; None for a part of other methods."""
    needs: ClassVar[Needs] = {}

    def find_mistakes(self, settings: object) -> Iterator[Mistake]:
        """Yield a sentence for each setting of a run that does not go with this part; `needs` are others."""
        del settings
        return iter(())
