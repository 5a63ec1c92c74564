from fractions import Fraction

from jobs.tasks.word_problems.expressions import evaluate
from jobs.tasks.word_problems.facts import make_facts
from jobs.tasks.word_problems.formulas import parse_formula
from jobs.tasks.word_problems.question_set import is_held_out_set

FACTS = make_facts(300, 7, 1, 2, "tiny")


def numbers_of(text: str) -> list[Fraction]:
    return [Fraction(piece) for piece in text.split() if piece.isdigit()]


def test_facts_are_right_and_the_same_for_a_seed():
    assert make_facts(300, 7, 1, 2, "tiny") == FACTS
    for fact in FACTS:
        assert str(evaluate(parse_formula(fact.calculation), lambda _: frozenset(), {}).value) == fact.result


def test_facts_are_of_all_operations_and_of_the_sizes_in_the_stories():
    assert {sign for fact in FACTS for sign in "+-*/" if sign in fact.calculation} == set("+-*/")
    assert max(number for fact in FACTS for number in numbers_of(fact.calculation)) <= 360


def test_no_held_out_set_of_numbers_is_a_fact():
    assert not any(is_held_out_set(sorted(numbers_of(fact.calculation))) for fact in FACTS)
