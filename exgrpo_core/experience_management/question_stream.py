"""Fresh questions, D in a new order every epoch, and the retired set S that they skip (lines 26 and 33)."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from exgrpo_core.types import BoolArray, Int64Array


@dataclass(frozen=True, slots=True)
class FreshDraw:
    """Questions for the fresh slots of a step.

    `ignored_skip`: too few unretired questions were left, so retired ones are among them.
    """

    question_indices: list[int]
    ignored_skip: bool


class QuestionStream:
    """Every question has one turn an epoch; the order of an epoch depends on the seed and its number only.

    A retired question loses its turn. A question that cannot be drawn in this step, since it is being replayed or
    was drawn already, keeps its turn for the next draw.
    """

    def __init__(self, num_questions: int, seed: int) -> None:
        self._num_questions = num_questions
        self._seed = seed
        self._epoch = 0
        self._position = 0
        self._deferred: list[int] = []
        self._order = self._shuffled()

    def draw(self, count: int, skip: BoolArray, exclude: Collection[int]) -> FreshDraw:
        """Take `count` different questions.

        Args:
            count: Questions wanted.
            skip: Mask (num_questions,) of retired questions. They are drawn only when no other question is left.
            exclude: Questions that are in this step already.

        Raises:
            ValueError: The data set has fewer than `count` questions besides those excluded.
        """
        excluded = set(exclude)
        if count < 0 or count > self._num_questions - len(excluded):
            raise ValueError(
                f"count: expected 0 to {self._num_questions - len(excluded)} fresh questions ({self._num_questions} in "
                f"the data set, {len(excluded)} of them replayed), got {count}; lower the batch size."
            )
        num_open_excluded = sum(not skip[index] for index in excluded)
        num_open = self._num_questions - int(np.count_nonzero(skip)) - num_open_excluded
        chosen: dict[int, None] = {}
        self._take(min(count, num_open), skip, excluded, chosen)
        if count > num_open:
            self._take(count, np.zeros_like(skip), excluded, chosen)
        return FreshDraw(list(chosen), ignored_skip=count > num_open)

    def _take(self, count: int, skip: BoolArray, excluded: set[int], chosen: dict[int, None]) -> None:
        """Draw until `chosen` holds `count` questions; turns that must wait are deferred in their order."""
        waiting, self._deferred = self._deferred, []
        num_seen = 0
        while len(chosen) < count:
            if num_seen < len(waiting):
                index = waiting[num_seen]
                num_seen += 1
            else:
                index = self._next()
            if skip.item(index):
                continue
            if index in excluded or index in chosen:
                self._deferred.append(index)
            else:
                chosen[index] = None
        self._deferred += waiting[num_seen:]

    def _next(self) -> int:
        if self._position == self._num_questions:
            self._epoch += 1
            self._position = 0
            self._order = self._shuffled()
        self._position += 1
        return int(self._order.item(self._position - 1))

    def _shuffled(self) -> Int64Array:
        rng = np.random.Generator(np.random.PCG64([self._seed, self._epoch]))
        return rng.permutation(self._num_questions)

    def state_dict(self) -> dict[str, Any]:
        """Return what `load_state_dict` needs to continue with the same questions."""
        return {"epoch": self._epoch, "position": self._position, "deferred": list(self._deferred)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue a saved stream of the same questions and seed."""
        self._epoch = int(state["epoch"])
        self._position = int(state["position"])
        self._deferred = [int(index) for index in state["deferred"]]
        self._order = self._shuffled()


class RetiredSet:
    """S over the questions of one data set, by index."""

    def __init__(self, num_questions: int) -> None:
        self._mask: BoolArray = np.zeros(num_questions, dtype=np.bool_)
        self._size = 0

    def add(self, question_index: int) -> None:
        """Put a question into S, if it is not in it."""
        if question_index in self:
            return
        self._size += 1
        self._mask[question_index] = True

    def __contains__(self, question_index: int) -> bool:
        return bool(self._mask[question_index])

    def __len__(self) -> int:
        return self._size

    @property
    def mask(self) -> BoolArray:
        """Which questions are in S (num_questions,), to read only; it follows later changes."""
        return self._mask

    def sorted_members(self) -> Int64Array:
        """Return the indices in S, ascending."""
        return np.flatnonzero(self._mask).astype(np.int64, copy=False)

    def state_dict(self) -> dict[str, Any]:
        """Return what `load_state_dict` needs to rebuild S."""
        return {"members": self.sorted_members()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Replace S by a saved one of the same questions."""
        self._mask[:] = False
        self._mask[np.asarray(state["members"], dtype=np.int64)] = True
        self._size = int(np.count_nonzero(self._mask))
