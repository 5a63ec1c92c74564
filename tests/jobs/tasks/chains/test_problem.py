import random
from collections import Counter

import pytest

from exgrpo.jobs.tasks.chains.demonstrators import make_tokenizer
from exgrpo.jobs.tasks.chains.question_set import LABELS, ChainProblem, draw_problem, make_questions, read_problem

TOKENIZER = make_tokenizer()


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
    with pytest.raises(ValueError, match="modulo 10"):
        ChainProblem.parse(text, modulus=10)


def test_a_longer_set_begins_with_the_shorter_one_so_held_out_questions_are_disjoint():
    longer, shorter = ([q.question_id for q in make_questions(num, 7, TOKENIZER)] for num in (608, 512))
    assert longer[:512] == shorter
    assert not set(shorter) & set(longer[512:])


def test_a_question_has_a_stable_id_and_carries_its_problem_and_how_it_is_graded():
    short = make_questions(1, 1, TOKENIZER, min_operations=1, max_operations=1)[0]
    assert (short.prompt_text, short.question_id) == ("Q9a+6:", "239e2dbc84d831a1")
    question = make_questions(20, 1, TOKENIZER, min_operations=4, max_operations=4)[0]
    problem = ChainProblem.parse(question.prompt_text, 10)
    assert question.answer == str(problem.answer)
    assert question.metadata["difficulty"] == 4
    assert question.metadata["answer_kind"] == "chains"
    assert TOKENIZER.decode(question.prompt_ids) == question.prompt_text
    assert read_problem(question) == problem


def test_difficulties_are_drawn_evenly():
    counts = Counter(q.metadata["difficulty"] for q in make_questions(1600, 3, TOKENIZER))
    assert sorted(counts) == list(range(3, 11))
    assert min(counts.values()) > 140


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"min_operations": 5, "max_operations": 4}, "min_operations"),
        ({"max_operations": 17}, "max_operations"),
        ({"num_questions": 241, "min_operations": 1, "max_operations": 1}, "num_questions: there are only 240"),
    ],
)
def test_impossible_sets_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        make_questions(**{"num_questions": 4, "seed": 0, "tokenizer": TOKENIZER, **arguments})
