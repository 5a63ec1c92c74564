"""Wrong answers whose reasoning is right for long: the steps before the first fault, by the task's oracle."""

from collections.abc import Sequence
from dataclasses import dataclass

from db.rows.chains_of_thought import WrongAnswer
from jobs.specs.train import WORD_PROBLEMS_SOURCE
from jobs.tasks.chains import oracle as chains
from jobs.tasks.chains.problem import ChainProblem
from jobs.tasks.word_problems import oracle as stories
from jobs.tasks.word_problems.story import Story


@dataclass(frozen=True, slots=True)
class ReadAnswer:
    """A wrong answer with the right steps before its first fault, of all that its question needs."""

    answer: WrongAnswer
    num_good_steps: int
    num_steps: int

    @property
    def num_missing(self) -> int:
        """Right steps fewer than the question needs; 0: as many are right, and yet the answer is wrong."""
        return self.num_steps - self.num_good_steps


def read_wrong_answers(answers: Sequence[WrongAnswer]) -> list[ReadAnswer]:
    """Return the answers that an oracle can read, nearest misses first; none for tasks without one."""
    read = [item for answer in answers if (item := _read(answer)) is not None]
    return sorted(read, key=lambda item: (item.num_missing, -item.num_steps))


def _read(answer: WrongAnswer) -> ReadAnswer | None:
    try:
        if answer.details.get("data_source") == WORD_PROBLEMS_SOURCE:
            story = Story.from_details(answer.details)
            judged = stories.judge_response(story.problem, answer.text)
            num_steps = len(story.steps)
            return None if judged.is_valid is None else _limited(answer, judged.num_good_steps, num_steps)
        problem = ChainProblem.parse(answer.prompt_text, int(answer.details["modulus"]))
    except (KeyError, TypeError, ValueError):
        return None
    return _limited(answer, chains.judge_response(problem, answer.text).num_good_steps, problem.difficulty)


def _limited(answer: WrongAnswer, num_good_steps: int, num_steps: int) -> ReadAnswer:
    return ReadAnswer(answer, min(num_good_steps, num_steps), num_steps)
