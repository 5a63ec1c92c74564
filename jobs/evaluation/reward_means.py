"""Means of the parts of a training reward over the answers of an evaluation, beside its scores."""

from collections.abc import Mapping, Sequence

import numpy as np

from exgrpo_core.types import Question
from jobs.evaluation.answer_log import AnsweredQuestion
from jobs.evaluation.questions import BenchmarkQuestion
from jobs.grading.outcomes import Outcome
from jobs.grading.reward_function import Response, Verdict
from jobs.training.reward_parts import RewardParts

_NO_TOKENS = np.empty(0, dtype=np.int32)


def reward_means(
    parts: RewardParts, questions: Sequence[BenchmarkQuestion], answers: Mapping[str, AnsweredQuestion]
) -> dict[str, float]:
    """Return the mean of each part by its name; the answer is right where `training` says so."""
    graded = [
        (
            Question(index, item.question_id, _NO_TOKENS, item.text, item.answer, {"question": item.text}),
            Response(sample.text, _NO_TOKENS, sample.is_truncated),
            Verdict(float(sides.training is Outcome.CORRECT), sides.training.value),
        )
        for index, item in enumerate(questions)
        for sample, sides in zip(answers[item.question_id].samples, answers[item.question_id].outcomes, strict=True)
    ]
    asked, responses, verdicts = (list(column) for column in zip(*graded, strict=True))
    parts.weigh(asked, responses, verdicts)
    return parts.take_means()
