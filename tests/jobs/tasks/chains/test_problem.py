import random

import pytest

from jobs.tasks.chains.problem import LABELS, ChainProblem, count_problems, draw_problem


def test_text_and_answer_are_those_of_the_worked_example():
    problem = ChainProblem.parse("Q6a*2b*9c-5d*3:", modulus=10)
    assert problem.register_values() == [2, 8, 3, 9]
    assert problem.answer == 9
    assert problem.difficulty == 4


@pytest.mark.parametrize("modulus", [10, 100])
def test_a_problem_is_read_back_from_its_text(modulus):
    rng = random.Random(0)
    for num_operations in range(1, len(LABELS) + 1):
        problem = draw_problem(rng, num_operations, modulus)
        assert ChainProblem.parse(problem.text, modulus) == problem
        assert 0 <= problem.answer < modulus


@pytest.mark.parametrize("text", ["Q6:", "Q6b*2:", "Q12a*2:", "Q6a*1:", "Q6a*2", "x", ""])
def test_other_text_is_refused(text):
    with pytest.raises(ValueError, match="register chain"):
        ChainProblem.parse(text, modulus=10)


def test_problems_are_counted():
    distinct = {draw_problem(random.Random(seed), 1) for seed in range(5000)}
    assert len(distinct) == count_problems(1, 10) == 240
