"""Sets of register-chain questions: distinct, reproducible by seed, training and held-out ones disjoint."""

import random

from exgrpo_core.types import Question
from jobs.tasks.chains.problem import LABELS, ChainProblem, count_problems, draw_problem
from jobs.tasks.questions import TextEncoder, build_question, encode_prompt, hash_question

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
    _check_range(num_questions, min_operations, max_operations, modulus)
    rng = random.Random(seed)
    problems: dict[ChainProblem, None] = {}
    while len(problems) < num_questions:
        problems.setdefault(draw_problem(rng, rng.randint(min_operations, max_operations), modulus))
    return [make_question(index, problem, tokenizer) for index, problem in enumerate(problems)]


def split_questions(questions: list[Question], num_training: int) -> tuple[list[Question], list[Question]]:
    """Return the first `num_training` questions and the held-out rest."""
    return questions[:num_training], questions[num_training:]


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


def _check_range(num_questions: int, min_operations: int, max_operations: int, modulus: int) -> None:
    if not 1 <= min_operations <= max_operations <= len(LABELS):
        raise ValueError(
            f"min_operations and max_operations: expected 1 <= min <= max <= {len(LABELS)}, "
            f"got {min_operations} and {max_operations}."
        )
    num_possible = sum(count_problems(length, modulus) for length in range(min_operations, max_operations + 1))
    if num_questions > num_possible:
        raise ValueError(f"num_questions: there are only {num_possible} such chains, got {num_questions}.")
