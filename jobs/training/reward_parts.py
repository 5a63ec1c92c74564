"""The reward of training as a weighted sum of parts; verdicts stay those of the answer."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from exgrpo_core.types import Question
from jobs.grading.outcomes import Outcome
from jobs.grading.reward_function import Response, RewardFunction, Verdict
from jobs.specs.reward_parts import ANSWER, FORMAT, RANDOM, code_parts
from jobs.training.code_reward import CodeReward

Values = NDArray[np.float64]
"""A part's reward of each response; NaN where code gives none, which counts as 0."""
Part = Callable[[Sequence[Question], Sequence[Response], Sequence[Verdict]], Values]


@contextmanager
def open_reward_parts(answer: RewardFunction, weights: Mapping[str, float]) -> Iterator["RewardParts"]:
    """Yield a reward of weighted parts, and end the processes of those by code afterwards.

    Raises:
        InputError: A part is code that this machine does not allow.
    """
    with ExitStack() as stack:
        parts = {name: part for name, part in _PARTS.items() if name in weights}
        for name, location in code_parts(weights).items():
            parts[name] = partial(_reward_by_code, stack.enter_context(closing(CodeReward(location))))
        yield RewardParts(answer, parts, weights)


class RewardParts:
    """Rewards responses by parts and counts each, for its curve. Used by one thread at a time."""

    def __init__(self, answer: RewardFunction, parts: Mapping[str, Part], weights: Mapping[str, float]) -> None:
        self._answer = answer
        self._parts = parts
        self._weights = weights
        by_code = [name for name in weights if name not in _PARTS]
        self._curves = {name: f"code_{by_code.index(name) + 1}" if name in by_code else name for name in weights}
        self._graded: dict[str, list[float]] = {name: [] for name in weights}

    def grade(self, questions: Sequence[Question], responses: Sequence[Response]) -> list[Verdict]:
        """Return one verdict a response, in order, with the weighted sum as its reward."""
        return self.weigh(questions, responses, self._answer.grade(questions, responses))

    def weigh(
        self, questions: Sequence[Question], responses: Sequence[Response], verdicts: Sequence[Verdict]
    ) -> list[Verdict]:
        """Return the verdicts on answers, in order, with the weighted sum as their reward."""
        total = np.zeros(len(verdicts))
        for name, weight in self._weights.items():
            values = self._parts[name](questions, responses, verdicts)
            self._graded[name] += values.tolist()
            total += weight * np.nan_to_num(values)
        return [replace(verdict, reward=float(reward)) for verdict, reward in zip(verdicts, total, strict=True)]

    def take_means(self) -> dict[str, float]:
        """Return the mean of each part over the responses since the last call, by the part's name."""
        means = {name: float(np.nan_to_num(values).mean()) for name, values in self._graded.items() if values}
        self._graded = {name: [] for name in self._weights}
        return means

    def take_metrics(self) -> dict[str, float]:
        """Return the mean of each part over the responses since the last call, and how many of code's calls failed."""
        graded = {name: np.array(values) for name, values in self._graded.items() if values}
        failed = [np.isnan(values).mean() for name, values in graded.items() if name not in _PARTS]
        means = {f"reward/{self._curves[name]}": mean for name, mean in self.take_means().items()}
        return means | ({"reward/failed": float(np.mean(failed))} if failed else {})


def _reward_answers(
    _questions: Sequence[Question], _responses: Sequence[Response], verdicts: Sequence[Verdict]
) -> Values:
    return np.array([verdict.reward for verdict in verdicts])


def _reward_format(
    _questions: Sequence[Question], _responses: Sequence[Response], verdicts: Sequence[Verdict]
) -> Values:
    return np.array([float(verdict.outcome != Outcome.UNPARSED) for verdict in verdicts])


def _reward_at_random(
    _questions: Sequence[Question], responses: Sequence[Response], _verdicts: Sequence[Verdict]
) -> Values:
    """Draw with a seed from all responses together: a resumed run draws the same, and none is told by its content."""
    seed = 0
    for response in responses:
        seed = crc32(response.token_ids.tobytes(), seed)
    return np.random.default_rng(seed).integers(0, 2, len(responses)).astype(np.float64)


def _reward_by_code(
    code: CodeReward, questions: Sequence[Question], responses: Sequence[Response], _verdicts: Sequence[Verdict]
) -> Values:
    calls = [
        (str(question.metadata.get("question") or question.prompt_text), question.answer, response.text)
        for question, response in zip(questions, responses, strict=True)
    ]
    return np.array(code.rewards(calls), dtype=np.float64)


_PARTS: dict[str, Part] = {ANSWER: _reward_answers, FORMAT: _reward_format, RANDOM: _reward_at_random}
