"""A replay method as somebody else would write it, in a module of their own."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from exgrpo_core.methods.protocols import TrajectorySelector
from exgrpo_core.methods.ranges import NotNegative
from exgrpo_core.strategies.ablations import Uniform
from exgrpo_core.strategies.fifo import Fifo
from exgrpo_core.strategies.retrospective import Retrospective


@dataclass(frozen=True, slots=True)
class Shortest(TrajectorySelector):
    name: ClassVar[str] = "shortest"
    least_tokens: NotNegative

    def score(self, candidates):
        lengths = candidates.num_tokens.astype(np.float32)
        return np.where(lengths < self.least_tokens, np.float32(np.inf), lengths)


class Nameless(TrajectorySelector):
    def score(self, candidates):
        return candidates.entropies


class Undecorated(Nameless):
    name = "undecorated"
    least_tokens: NotNegative = 1.0


class Even(Uniform):
    """Stores what the paper stores."""

    name = "even"


class EvenShort(Uniform):
    """Stores short successes only, which their tokens and texts show."""

    name = "even_short"

    def keep(self, group, successes):
        del group
        return [one for one in successes if one.token_ids.size <= 4 and one.text]


@dataclass(frozen=True, slots=True)
class FewQuestions(Fifo):
    """A queue by another name."""

    name: ClassVar[str] = "few_questions"


@dataclass(frozen=True, slots=True)
class TrainedPrefix(Retrospective):
    """Retrospective replay whose prefixes are trained on."""

    name: ClassVar[str] = "trained_prefix"

    def _prefix(self, step, question_index):
        prefix = Retrospective._prefix(self, step, question_index)
        return None if prefix is None else replace(prefix, is_trained=True)
