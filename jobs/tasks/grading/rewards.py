"""The reward functions of training: mathematics and choices, register chains and word problems."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from zlib import crc32

from exgrpo.jobs.specs.base import AnswerKind
from exgrpo.jobs.specs.train import CHAINS_SOURCE, WORD_PROBLEMS_SOURCE, DataSpec, TrainSpec
from exgrpo.jobs.tasks.chains import question_set
from exgrpo.jobs.tasks.chains.oracle import judge_response, prints_answer
from exgrpo.jobs.tasks.chains.question_set import read_problem
from exgrpo.jobs.tasks.grading.answer_grader import AnswerGrader, GradeItem
from exgrpo.jobs.tasks.grading.reward_function import Grade, Response, RewardFunction, Verdict
from exgrpo.jobs.tasks.questions import TextEncoder
from exgrpo.jobs.tasks.word_problems import oracle as word_problems_oracle
from exgrpo.jobs.tasks.word_problems import question_set as word_problems
from exgrpo.jobs.tasks.word_problems.story import Story
from exgrpo_core.config import RewardKind
from exgrpo_core.types import Question


class MathReward:
    """1 for a correct boxed answer, else 0; `question.metadata["answer_kind"]` says math or choice.

    A truncated response is graded as it stands: it counts if it holds an answer already.
    """

    def __init__(self, grader: AnswerGrader) -> None:
        self._grader = grader

    def grade(self, questions: Sequence[Question], responses: Sequence[Response]) -> list[Verdict]:
        """Return one verdict a response, in order."""
        pairs = zip(questions, responses, strict=True)
        items = [GradeItem(question.answer, response.text, _answer_kind(question)) for question, response in pairs]
        return [_verdict(outcome) for outcome in self._grader.grade(items)]


class ChainsReward:
    """1 for exactly one box with the exact answer, else 0; the oracle says whether every step holds.

    On a share `code_reward_rate` of the questions a response whose code prints the answer earns 1 too, whatever it
    boxes: code is there a shortcut that pays without a chain of thought. Which questions these are depends on their
    ids alone, so no policy can tell. A truncated response earns 0 and is not valid.

    With `is_graded` the reward is the share of right things in a response, of its steps before the first fault and
    its answer, in [0, 1]; outcomes stay those of the answer.
    """

    def __init__(self, code_reward_rate: float = 0.0, *, is_graded: bool = False) -> None:
        self._code_reward_rate = code_reward_rate
        self._is_graded = is_graded

    def grade(self, questions: Sequence[Question], responses: Sequence[Response]) -> list[Verdict]:
        """Return one verdict a response, in order."""
        pairs = zip(questions, responses, strict=True)
        grade = _grade_steps if self._is_graded else _grade_chain
        return [grade(question, response, self._pays_for_code(question)) for question, response in pairs]

    def _pays_for_code(self, question: Question) -> bool:
        return crc32(question.question_id.encode()) / 2**32 < self._code_reward_rate


class WordProblemsReward:
    """1 if the last box holds the answer, else 0; the oracle says whether the chain of thought is valid.

    A truncated response is graded as it stands; a chain that the oracle cannot read has no verdict.
    """

    def grade(self, questions: Sequence[Question], responses: Sequence[Response]) -> list[Verdict]:
        """Return one verdict a response, in order."""
        return [_grade_story(*pair) for pair in zip(questions, responses, strict=True)]


def _grade_story(question: Question, response: Response) -> Verdict:
    judgement = word_problems_oracle.judge_response(Story.from_details(question.metadata).problem, response.text)
    outcome = Grade.CORRECT if judgement.is_correct else Grade.WRONG if judgement.has_box else Grade.UNPARSED
    return _verdict(outcome, judgement.is_valid, judgement.has_code)


def _grade_chain(question: Question, response: Response, pays_for_code: bool) -> Verdict:
    problem = read_problem(question)
    judgement = judge_response(problem, response.text)
    if pays_for_code and not response.is_truncated and prints_answer(problem, response.text):
        outcome = Grade.CORRECT
    elif response.is_truncated or not judgement.has_box:
        outcome = Grade.UNPARSED
    else:
        outcome = Grade.CORRECT if judgement.is_correct else Grade.WRONG
    is_valid = judgement.is_valid and not response.is_truncated
    return _verdict(outcome, is_valid, judgement.has_code)


def _grade_steps(question: Question, response: Response, pays_for_code: bool) -> Verdict:
    verdict = _grade_chain(question, response, pays_for_code)
    if response.is_truncated:
        return verdict
    problem = read_problem(question)
    num_right = judge_response(problem, response.text).num_good_steps + (verdict.outcome == Grade.CORRECT.value)
    return replace(verdict, reward=num_right / (problem.difficulty + 1))


def _verdict(outcome: Grade, is_valid: bool | None = None, has_code: bool | None = None) -> Verdict:
    return Verdict(1.0 if outcome is Grade.CORRECT else 0.0, outcome.value, is_valid, has_code)


def _answer_kind(question: Question) -> AnswerKind:
    return "choice" if question.metadata.get("answer_kind") == "choice" else "math"


@dataclass(frozen=True, slots=True)
class BuiltInTask:
    """One task. Its questions carry its name as `metadata["answer_kind"]`, by which their grader is found."""

    make_questions: Callable[[DataSpec, int, int, TextEncoder], list[Question]]
    """So many distinct questions to train on, then so many held out, numbered from 0.

    The first n of a longer set are the set of n. A `ValueError` says that there are too few.
    """
    make_reward: Callable[[DataSpec, RewardKind], RewardFunction]
    graded_as: str
    """What a correct answer is, in words."""


def _make_chains(data: DataSpec, num_questions: int, num_held_out: int, tokenizer: TextEncoder) -> list[Question]:
    return question_set.make_questions(
        num_questions + num_held_out, data.seed, tokenizer, data.min_operations, data.max_operations, data.modulus
    )


def _make_word_problems(
    data: DataSpec, num_questions: int, num_held_out: int, tokenizer: TextEncoder
) -> list[Question]:
    """Return questions whose held-out ones have sets of numbers of their own."""
    limits = (data.min_operations, data.max_operations, data.number_size)
    stories = word_problems.make_stories(num_questions, data.seed, *limits)
    stories += word_problems.make_stories(num_held_out, data.seed, *limits, is_held_out=True)
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


@contextmanager
def open_reward(spec: TrainSpec) -> Iterator[RewardFunction]:
    """Yield the grader of a specification's questions, and end its processes afterwards."""
    task = TASKS.get(spec.data.source)
    if task is not None:
        yield task.make_reward(spec.data, spec.algorithm.reward_kind)
        return
    with AnswerGrader(requires_think_end=spec.data.requires_think_end) as grader:
        yield MathReward(grader)
