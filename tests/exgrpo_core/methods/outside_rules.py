"""A replay method as somebody else would write it, in a module of their own."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from exgrpo_core.methods.protocols import TrajectorySelector


@dataclass(frozen=True, slots=True)
class Shortest(TrajectorySelector):
    name: ClassVar[str] = "shortest"
    least_tokens: float

    def score(self, candidates):
        lengths = candidates.num_tokens.astype(np.float32)
        return np.where(lengths < self.least_tokens, np.float32(np.inf), lengths)
