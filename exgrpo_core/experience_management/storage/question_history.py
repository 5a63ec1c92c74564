"""What was drawn and seen of each question, in memory: columns over all questions, saved with a snapshot."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exgrpo_core.types import Float32Array, Float64Array, Int32Array, Int64Array


class QuestionHistory:
    """Draws of each question, the step of the last one, and how the rewards of its latest group spread.

    16 bytes a question. `reward_spreads` (questions, 2) hold standard deviation (of K - 1) and mean absolute deviation.
    """

    def __init__(self, num_questions: int) -> None:
        self.draw_counts: Int32Array = np.zeros(num_questions, dtype=np.int32)
        self.draw_steps: Int32Array = np.full(num_questions, -1, dtype=np.int32)
        self.reward_spreads: Float32Array = np.zeros((num_questions, 2), dtype=np.float32)

    @property
    def num_bytes(self) -> int:
        """Bytes of the columns in memory."""
        return self.draw_counts.nbytes + self.draw_steps.nbytes + self.reward_spreads.nbytes

    def record_draws(self, question_indices: Int64Array, step: int) -> None:
        """Count one more draw of each of these questions, in `step`."""
        np.add.at(self.draw_counts, question_indices, 1)
        self.draw_steps[question_indices] = step

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

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return what `load` needs, as columns of a snapshot."""
        return {
            "draw_counts": self.draw_counts,
            "draw_steps": self.draw_steps,
            "reward_spreads": self.reward_spreads.reshape(-1),
        }

    def load(self, columns: Mapping[str, NDArray[Any]]) -> None:
        """Continue from the columns of a snapshot; an older one holds counts only."""
        self.draw_counts = columns["draw_counts"].copy()
        if "draw_steps" in columns:
            self.draw_steps = columns["draw_steps"].copy()
            self.reward_spreads = columns["reward_spreads"].copy().reshape(-1, 2)
