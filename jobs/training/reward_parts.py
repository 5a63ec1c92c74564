"""The reward of training as a weighted sum of parts; verdicts stay those of the answer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from exgrpo_core.types import Question
from jobs.grading.outcomes import Outcome
from jobs.grading.reward_function import Response, RewardFunction, Verdict
from jobs.specs.reward_parts import ANSWER, FORMAT, RANDOM

Values = NDArray[np.float64]
"""A part's reward of each response."""


class RewardParts:
    """Rewards responses by parts and counts each, for its curve. Used by one thread at a time."""

    def __init__(self, answer: RewardFunction, weights: Mapping[str, float]) -> None:
        self._answer = answer
        self._weights = weights
        self._graded: dict[str, list[float]] = {name: [] for name in weights}

    def grade(self, questions: Sequence[Question], responses: Sequence[Response]) -> list[Verdict]:
        """Return one verdict a response, in order, with the weighted sum as its reward."""
        verdicts = self._answer.grade(questions, responses)
        total = np.zeros(len(verdicts))
        for name, weight in self._weights.items():
            values = _PARTS[name](responses, verdicts)
            self._graded[name] += values.tolist()
            total += weight * values
        return [replace(verdict, reward=float(reward)) for verdict, reward in zip(verdicts, total, strict=True)]

    def take_metrics(self) -> dict[str, float]:
        """Return the mean of each part over the responses since the last call."""
        means = {f"reward/{name}": float(np.mean(values)) for name, values in self._graded.items() if values}
        self._graded = {name: [] for name in self._weights}
        return means


def _reward_answers(_responses: Sequence[Response], verdicts: Sequence[Verdict]) -> Values:
    return np.array([verdict.reward for verdict in verdicts])


def _reward_format(_responses: Sequence[Response], verdicts: Sequence[Verdict]) -> Values:
    return np.array([float(verdict.outcome != Outcome.UNPARSED) for verdict in verdicts])


def _reward_at_random(responses: Sequence[Response], _verdicts: Sequence[Verdict]) -> Values:
    """Draw with a seed from all responses together: a resumed run draws the same, and none is told by its content."""
    seed = 0
    for response in responses:
        seed = crc32(response.token_ids.tobytes(), seed)
    return np.random.default_rng(seed).integers(0, 2, len(responses)).astype(np.float64)


_PARTS: dict[str, Callable[[Sequence[Response], Sequence[Verdict]], Values]] = {
    ANSWER: _reward_answers,
    FORMAT: _reward_format,
    RANDOM: _reward_at_random,
}
