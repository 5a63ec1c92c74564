"""The built-in tasks: how the questions of each are made, and how responses to them are graded."""

from collections.abc import Callable
from dataclasses import dataclass

from exgrpo_core.config import RewardKind
from exgrpo_core.types import Question
from jobs.grading.reward_function import RewardFunction
from jobs.grading.rewards import ChainsReward, WordProblemsReward
from jobs.specs.train import CHAINS_SOURCE, WORD_PROBLEMS_SOURCE, DataSpec
from jobs.tasks.chains import question_set
from jobs.tasks.questions import TextEncoder
from jobs.tasks.word_problems import question_set as word_problems


@dataclass(frozen=True, slots=True)
class BuiltInTask:
    """One task. Its questions carry its name as `metadata["answer_kind"]`, by which their grader is found."""

    make_questions: Callable[[DataSpec, int, TextEncoder], list[Question]]
    """So many distinct questions, numbered from 0; the first n of a longer set are the set of n."""
    make_reward: Callable[[DataSpec, RewardKind], RewardFunction]
    graded_as: str
    """What a right answer is, in words."""


def _make_chains(data: DataSpec, num_questions: int, tokenizer: TextEncoder) -> list[Question]:
    return question_set.make_questions(
        num_questions, data.seed, tokenizer, data.min_operations, data.max_operations, data.modulus
    )


def _make_word_problems(data: DataSpec, num_questions: int, tokenizer: TextEncoder) -> list[Question]:
    longest = min(data.max_operations, word_problems.MAX_OPERATIONS)
    stories = word_problems.make_stories(num_questions, data.seed, data.min_operations, longest, data.number_size)
    return [word_problems.make_question(index, story, tokenizer) for index, story in enumerate(stories)]


TASKS: dict[str, BuiltInTask] = {
    CHAINS_SOURCE: BuiltInTask(
        make_questions=_make_chains,
        make_reward=lambda data, kind: ChainsReward(data.code_reward_rate, is_graded=kind is RewardKind.CONTINUOUS),
        graded_as="number below the modulus",
    ),
    WORD_PROBLEMS_SOURCE: BuiltInTask(
        make_questions=_make_word_problems,
        make_reward=lambda _data, _kind: WordProblemsReward(),
        graded_as="number in the last box",
    ),
}
"""By the name that `data.source` gives."""
