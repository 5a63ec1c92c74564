import random
from fractions import Fraction

import pytest

from jobs.tasks.word_problems.forms import draw_story, load_forms
from jobs.tasks.word_problems.oracle import judge_response

FORMS = {form.name: form for form in load_forms()}


@pytest.mark.parametrize("name", FORMS)
def test_stories_of_a_form_have_whole_positive_numbers_and_an_answer_that_is_not_among_them(name):
    rng = random.Random(name)
    for size in ("small", "medium", "large"):
        story = draw_story(rng, FORMS[name], size)
        assert "{" not in story.text
        assert all(str(number) in story.text for number in story.numbers)
        assert len(set(story.numbers)) == len(story.numbers)
        answer = Fraction(story.answer)
        assert answer > 0
        assert answer.denominator == 1
        assert answer not in story.numbers


def test_the_last_step_with_the_earlier_ones_put_in_is_the_solution():
    story = draw_story(random.Random(0), FORMS["boxes and loose"], "small")
    boxes, each, loose = story.numbers
    assert story.problem.solution == "(a * b) + c"
    assert story.problem.answer.value == boxes * each + loose
    chain = f"{boxes} * {each} = {boxes * each}. {boxes * each} + {loose} = {story.answer}. \\boxed{{{story.answer}}}"
    assert judge_response(story.problem, chain).is_valid
