import random
from fractions import Fraction

import pytest

from exgrpo.jobs.tasks.word_problems.demonstrators import (
    Demonstrators,
    make_facts,
    work_out,
    write_demonstration,
    write_steps,
)
from exgrpo.jobs.tasks.word_problems.expressions import evaluate, parse_formula
from exgrpo.jobs.tasks.word_problems.oracle import ChainVerdict, judge_response
from exgrpo.jobs.tasks.word_problems.question_set import draw_story, is_held_out_set, load_forms, make_stories

pytestmark = pytest.mark.slow

STORIES = make_stories(100, 11)
NONE = {"code_only": 0.0, "sloppy_with_code": 0.0, "skipping": 0.0, "guessing": 0.0}


def judgements(demonstrators: Demonstrators):
    rng = random.Random(5)
    return [judge_response(story.problem, write_demonstration(story, rng, demonstrators)) for story in STORIES]


def share(flags) -> float:
    flags = list(flags)
    return sum(flags) / len(flags)


@pytest.mark.parametrize("form", load_forms(), ids=lambda form: form.name)
def test_right_chains_of_every_form_are_valid_in_every_style(form):
    rng = random.Random(form.name)
    for _ in range(12):
        story = draw_story(rng, form, "medium")
        text = f"{write_steps(work_out(story, rng, 0.0), rng)}\n\\boxed{{{story.answer}}}"
        assert judge_response(story.problem, text).verdict is ChainVerdict.VALID, text


def test_each_kind_alone_is_what_it_is_called():
    def only(**shares):
        return judgements(Demonstrators(error_scale=0.0, **{**NONE, **shares}))

    assert all(item.is_valid and not item.has_code for item in only())
    assert all(item.has_code and not item.is_valid for item in only(code_only=1.0))
    sloppy = only(sloppy_with_code=1.0)
    assert all(item.has_code and item.is_correct for item in sloppy)
    assert share(item.is_valid for item in sloppy) == pytest.approx(0.5, abs=0.1)  # half of the code is wrong
    skipped = [item for item, story in zip(only(skipping=1.0), STORIES, strict=True) if story.difficulty > 2]
    assert all(item.is_correct for item in skipped)
    assert share(item.is_valid is True for item in skipped) < 0.05
    assert all(item.has_box and not item.is_correct and item.is_valid is None for item in only(guessing=1.0))


def test_a_wrong_fact_makes_a_chain_invalid_and_a_larger_error_scale_makes_fewer_right_answers():
    rates = []
    for scale in (0.0, 1.0, 5.0):
        judged = judgements(Demonstrators(error_scale=scale, **NONE))
        assert not any(item.is_valid and not item.is_correct for item in judged)
        rates.append(share(item.is_correct for item in judged))
    assert rates[0] == 1.0
    assert 0.65 < rates[1] < 0.95
    assert rates[2] < rates[1] - 0.15


FACTS = make_facts(300, 7, 1, 2, "tiny")


def test_facts_are_right_the_same_for_a_seed_of_the_stories_sizes_and_of_no_held_out_set():
    assert make_facts(300, 7, 1, 2, "tiny") == FACTS
    for fact in FACTS:
        numbers = [Fraction(piece) for piece in fact.calculation.split() if piece.isdigit()]
        assert str(evaluate(parse_formula(fact.calculation), lambda _: frozenset(), {}).value) == fact.result
        assert max(numbers) <= 360
        assert not is_held_out_set(sorted(numbers))
    assert {sign for fact in FACTS for sign in "+-*/" if sign in fact.calculation} == set("+-*/")
