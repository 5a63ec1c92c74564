r"""Register chains, a start value and operations on it modulo 10 or 100, and sets of them, reproducible by seed.

Question text `Q6a*2b*9c-5d*3:`; chain of thought `6;a*2=2;b*9=8;c-5=3;d*3=9;`; final answer `\boxed{9}`.
"""

import random
import re
from dataclasses import dataclass
from typing import NamedTuple, Self

from exgrpo.jobs.tasks.questions import TextEncoder, build_question, encode_prompt, hash_question
from exgrpo_core.types import Question

LABELS = "abcdefghijklmnop"
OPERATORS = "+-*"
SMALLEST_OPERAND = 2
LARGEST_OPERAND = 9
OPERATION_CHOICES = len(OPERATORS) * (LARGEST_OPERAND - SMALLEST_OPERAND + 1)

_QUESTION = re.compile(r"Q(\d{1,2})((?:[a-p][-+*][2-9])+):")
_OPERATION = re.compile(r"([a-p])([-+*])([2-9])")


class Operation(NamedTuple):
    """One step: `operator` (+, - or *) with a one-digit `operand`."""

    operator: str
    operand: int

    def apply(self, value: int) -> int:
        """Return `value` after this step, not reduced by the modulus."""
        if self.operator == "+":
            return value + self.operand
        return value - self.operand if self.operator == "-" else value * self.operand


@dataclass(frozen=True, slots=True)
class ChainProblem:
    """A start value and 1 to 16 operations, each named by the label of its place; answers are below `modulus`."""

    modulus: int
    start: int
    operations: tuple[Operation, ...]

    @property
    def difficulty(self) -> int:
        """Number of operations."""
        return len(self.operations)

    @property
    def text(self) -> str:
        """The whole prompt."""
        steps = zip(LABELS, self.operations, strict=False)
        return f"Q{self.start}" + "".join(f"{label}{op.operator}{op.operand}" for label, op in steps) + ":"

    @property
    def answer(self) -> int:
        """The register after the last operation."""
        return self.register_values()[-1]

    def register_values(self) -> list[int]:
        """Return the register after each operation."""
        values = []
        value = self.start
        for operation in self.operations:
            value = operation.apply(value) % self.modulus
            values.append(value)
        return values

    @classmethod
    def parse(cls, text: str, modulus: int) -> Self:
        """Read a question back from its text.

        Raises:
            ValueError: The text is not a register chain of this modulus.
        """
        match = _QUESTION.fullmatch(text)
        labelled = _OPERATION.findall(match.group(2)) if match else []
        labels = "".join(label for label, _, _ in labelled)
        if match is None or not LABELS.startswith(labels) or int(match.group(1)) >= modulus:
            raise ValueError(f"Expected a register chain modulo {modulus} such as Q6a*2b*9:, got {text[:60]!r}.")
        return cls(modulus, int(match.group(1)), tuple(Operation(o, int(operand)) for _, o, operand in labelled))


def draw_problem(rng: random.Random, num_operations: int, modulus: int = 10) -> ChainProblem:
    """Return a uniformly drawn problem of `num_operations` operations."""
    start = rng.randrange(modulus)
    operations = tuple(draw_operation(rng) for _ in range(num_operations))
    return ChainProblem(modulus, start, operations)


def draw_operation(rng: random.Random) -> Operation:
    """Return a uniformly drawn operation."""
    return Operation(rng.choice(OPERATORS), rng.randrange(SMALLEST_OPERAND, LARGEST_OPERAND + 1))


def write_step(place: int, operation: Operation, value: int) -> str:
    """Return the line of thought for the operation at `place` that leads to `value`."""
    return f"{LABELS[place]}{operation.operator}{operation.operand}={value};"


def write_box(answer: int) -> str:
    """Return the final answer."""
    return f"\\boxed{{{answer}}}"


SOURCE = "chains"


def make_questions(
    num_questions: int,
    seed: int,
    tokenizer: TextEncoder,
    min_operations: int = 3,
    max_operations: int = 10,
    modulus: int = 10,
) -> list[Question]:
    """Return `num_questions` distinct questions, numbered from 0, difficulties drawn uniformly.

    The first n of a longer set are the set of n with the same seed, so a prefix is a training set and the rest is
    held out.

    Raises:
        ValueError: The range of operations is empty or too long, or there are fewer such problems than asked for.
    """
    check_range(num_questions, min_operations, max_operations, modulus)
    rng = random.Random(seed)
    problems: dict[ChainProblem, None] = {}
    while len(problems) < num_questions:
        problems.setdefault(draw_problem(rng, rng.randint(min_operations, max_operations), modulus))
    return [make_question(index, problem, tokenizer) for index, problem in enumerate(problems)]


def make_question(index: int, problem: ChainProblem, tokenizer: TextEncoder) -> Question:
    """Return a problem as the core's question; its metadata says difficulty, operations and how it is graded."""
    answer = str(problem.answer)
    metadata = {
        "data_source": SOURCE,
        "answer_kind": "chains",
        "difficulty": problem.difficulty,
        "operations": "".join(operator + str(operand) for operator, operand in problem.operations),
        "modulus": problem.modulus,
    }
    question_id = hash_question(f"{SOURCE} modulo {problem.modulus}", problem.text, answer)
    prompt_ids = encode_prompt(tokenizer, problem.text)
    return build_question(index, question_id, problem.text, answer, prompt_ids, metadata)


def read_problem(question: Question) -> ChainProblem:
    """Return the problem that a question was made from.

    Raises:
        ValueError: The question is not a register chain.
    """
    modulus = question.metadata.get("modulus")
    if not isinstance(modulus, int):
        raise ValueError(f"metadata.modulus of question {question.question_id}: expected 10 or 100, got {modulus!r}.")
    return ChainProblem.parse(question.prompt_text, modulus)


def check_range(num_questions: int, min_operations: int, max_operations: int, modulus: int) -> None:
    """Do nothing if there are so many different problems.

    Raises:
        ValueError: There are fewer, or the range of operations is empty or too long.
    """
    if not 1 <= min_operations <= max_operations <= len(LABELS):
        raise ValueError(
            f"min_operations and max_operations: expected 1 <= min <= max <= {len(LABELS)}, "
            f"got {min_operations} and {max_operations}."
        )
    lengths = range(min_operations, max_operations + 1)
    num_possible = sum(modulus * OPERATION_CHOICES**length for length in lengths)
    if num_questions > num_possible:
        raise ValueError(f"num_questions: there are only {num_possible} such chains, got {num_questions}.")
