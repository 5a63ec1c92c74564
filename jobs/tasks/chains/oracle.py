"""The oracle: walks every step of a response to a register chain and runs its code, so validity is known exactly."""

import re
from dataclasses import dataclass

from jobs.tasks.chains.problem import LABELS, ChainProblem, write_box
from jobs.tasks.chains.program import ProgramError, run_program

CODE_FENCE = "```"

_STEP = re.compile(r"([a-p])([-+*])(\d{1,3})=(\d{1,3});")
_BOX = re.compile(r"\\boxed\{(-?\d{1,9})\}")
_CODE_BLOCK = re.compile(r"```python\n(.*?\n)```\n", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ChainJudgement:
    """What is true of one response.

    `is_correct`: it has exactly one box and the box holds the answer. `is_valid`: it states the start value, every
    step in order with its right value, then nothing, or one code block that runs and prints the answer, and then the
    right box. `num_good_steps` counts steps before the first fault.
    """

    is_correct: bool
    is_valid: bool
    has_box: bool
    has_code: bool
    num_good_steps: int

    @property
    def is_lucky_hit(self) -> bool:
        """Whether the answer is right although the chain of thought is not valid."""
        return self.is_correct and not self.is_valid


def judge_response(problem: ChainProblem, text: str) -> ChainJudgement:
    """Walk the response's steps, run its code and compare its box with the answer."""
    boxes = _BOX.findall(text)
    num_good_steps, position = _walk_steps(problem, text)
    is_complete = num_good_steps == problem.difficulty
    return ChainJudgement(
        is_correct=len(boxes) == 1 and int(boxes[0]) == problem.answer,
        is_valid=is_complete and _is_valid_ending(problem.answer, text[position:]),
        has_box=bool(boxes),
        has_code=CODE_FENCE in text,
        num_good_steps=num_good_steps,
    )


def prints_answer(problem: ChainProblem, text: str) -> bool:
    """Return whether the response's first code block runs and prints the answer and nothing else."""
    block = _CODE_BLOCK.search(text)
    return block is not None and _printed(block.group(1)) == [problem.answer]


def _walk_steps(problem: ChainProblem, text: str) -> tuple[int, int]:
    """Return the number of right steps before the first fault, and the position behind them."""
    head = f"{problem.start};"
    if not text.startswith(head):
        return 0, 0
    position = len(head)
    truth = zip(LABELS, problem.operations, problem.register_values(), strict=False)
    for index, (label, operation, value) in enumerate(truth):
        step = _STEP.match(text, position)
        expected = (label, operation.operator, str(operation.operand), str(value))
        if step is None or step.groups() != expected:
            return index, position
        position = step.end()
    return problem.difficulty, position


def _is_valid_ending(answer: int, ending: str) -> bool:
    block = _CODE_BLOCK.match(ending)
    if block is None:
        return ending == write_box(answer)
    return _printed(block.group(1)) == [answer] and ending[block.end() :] == write_box(answer)


def _printed(source: str) -> list[int] | None:
    try:
        return run_program(source)
    except ProgramError:
        return None
