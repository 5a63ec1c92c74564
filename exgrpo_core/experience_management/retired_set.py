"""The retired set S: questions that were solved in all of their rollouts (Algorithm 1, lines 26 and 33)."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from exgrpo_core.types import BoolArray, Int64Array


class RetiredSet:
    """S over the questions of one data set, by index."""

    def __init__(self, num_questions: int) -> None:
        self._mask: BoolArray = np.zeros(num_questions, dtype=np.bool_)
        self._size = 0
        self._added: list[int] = []

    def add(self, question_index: int) -> None:
        """Put a question into S, if it is not in it."""
        if question_index in self:
            return
        self._size += 1
        self._mask[question_index] = True
        self._added.append(question_index)

    def take_added(self) -> list[int]:
        """Return the questions that were added since the last call."""
        added, self._added = self._added, []
        return added

    def __contains__(self, question_index: int) -> bool:
        return bool(self._mask[question_index])

    def __len__(self) -> int:
        return self._size

    @property
    def mask(self) -> BoolArray:
        """Read-only view (num_questions,) of the questions in S; it follows later changes."""
        view = self._mask.view()
        view.flags.writeable = False
        return view

    def sorted_members(self) -> Int64Array:
        """Return the indices in S, ascending."""
        return np.flatnonzero(self._mask).astype(np.int64, copy=False)

    def state_dict(self) -> dict[str, Any]:
        """Return what `load_state_dict` needs to rebuild S."""
        return {"num_questions": self._mask.size, "members": self.sorted_members()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Replace S by a saved one.

        Raises:
            ValueError: It was saved over a different number of questions, or names one that does not exist.
        """
        if state["num_questions"] != self._mask.size:
            raise ValueError(
                f"num_questions: the retired set was saved over {state['num_questions']} questions, got "
                f"{self._mask.size}; resume with the data of that run."
            )
        members = np.asarray(state["members"], dtype=np.int64)
        if members.size and not 0 <= members.min() <= members.max() < self._mask.size:
            raise ValueError(f"members: expected indices of {self._mask.size} questions in the saved retired set.")
        self._mask[:] = False
        self._mask[members] = True
        self._size = int(np.count_nonzero(self._mask))
