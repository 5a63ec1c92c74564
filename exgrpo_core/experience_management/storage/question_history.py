"""What was drawn and seen of each question, in memory: columns over all questions, saved with a snapshot."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exgrpo_core.types import Float32Array, Float64Array, Int32Array, Int64Array


def distinct(parts: Sequence[Int64Array]) -> Int32Array:
    """Return the different numbers of all parts, ascending."""
    return np.unique(np.concatenate([*parts, np.empty(0, dtype=np.int64)])).astype(np.int32)


class QuestionHistory:
    """Draws of each question, the step of the last one, and how the rewards of its latest group spread.

    16 bytes a question. `reward_spreads` (questions, 2) hold standard deviation (of K - 1) and mean absolute deviation.
    """

    def __init__(self, num_questions: int) -> None:
        self.num_draws: Int32Array = np.zeros(num_questions, dtype=np.int32)
        self.draw_steps: Int32Array = np.full(num_questions, -1, dtype=np.int32)
        self.reward_spreads: Float32Array = np.zeros((num_questions, 2), dtype=np.float32)
        self._changed: list[Int64Array] = []

    @property
    def num_bytes(self) -> int:
        """Bytes of the columns in memory."""
        return self.num_draws.nbytes + self.draw_steps.nbytes + self.reward_spreads.nbytes

    def record_draws(self, question_indices: Int64Array, step: int) -> None:
        """Count one more draw of each of these questions, in `step`."""
        np.add.at(self.num_draws, question_indices, 1)
        self.draw_steps[question_indices] = step
        self._changed.append(question_indices)

    def record_rewards(self, question_indices: Sequence[int], rewards: Sequence[Float32Array]) -> None:
        """Keep how the rewards of each question's latest group spread, those of at least two trajectories."""
        if not rewards:
            return
        sizes = np.array([values.size for values in rewards])
        starts = np.cumsum(sizes) - sizes
        exact: Float64Array = np.concatenate(rewards, dtype=np.float64)
        gaps = exact - np.repeat(np.add.reduceat(exact, starts) / sizes, sizes)
        spreads = np.sqrt(np.add.reduceat(gaps**2, starts) / (sizes - 1)), np.add.reduceat(np.abs(gaps), starts) / sizes
        self.reward_spreads[list(question_indices)] = np.stack(spreads, axis=1)
        self._changed.append(np.array(question_indices, dtype=np.int64))

    def take_changes(self) -> dict[str, NDArray[Any]]:
        """Return what changed since the last call, as columns of a step; `apply` does it again."""
        questions, self._changed = distinct(self._changed), []
        return {
            "drawn_or_seen": questions,
            "num_draws": self.num_draws[questions],
            "draw_steps": self.draw_steps[questions],
            "reward_spreads": self.reward_spreads[questions].reshape(-1),
        }

    def apply(self, columns: Mapping[str, NDArray[Any]]) -> None:
        """Change what a step changed."""
        questions = columns["drawn_or_seen"]
        self.num_draws[questions] = columns["num_draws"]
        self.draw_steps[questions] = columns["draw_steps"]
        self.reward_spreads[questions] = columns["reward_spreads"].reshape(-1, 2)

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return what `load` needs, as columns of a snapshot."""
        return {
            "num_draws": self.num_draws,
            "draw_steps": self.draw_steps,
            "reward_spreads": self.reward_spreads.reshape(-1),
        }

    def load(self, columns: Mapping[str, NDArray[Any]]) -> None:
        """Continue from the columns of a snapshot."""
        self.num_draws = columns["num_draws"].copy()
        self.draw_steps = columns["draw_steps"].copy()
        self.reward_spreads = columns["reward_spreads"].copy().reshape(-1, 2)
