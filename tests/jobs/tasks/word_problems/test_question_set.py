import random
from collections import Counter
from fractions import Fraction

import pytest

from exgrpo.jobs.tasks.word_problems.oracle import judge_response
from exgrpo.jobs.tasks.word_problems.question_set import draw_story, is_held_out_set, load_forms, make_stories
from exgrpo.jobs.tasks.word_problems.story import Story

pytestmark = pytest.mark.slow

SIZES = ("tiny", "small", "medium", "large")


def test_a_set_is_the_same_for_a_seed_and_a_longer_one_begins_with_it():
    stories = make_stories(60, 7)
    assert make_stories(40, 7) == stories[:40]
    assert make_stories(60, 8) != stories
    assert len({story.text for story in stories}) == len({story.number_set for story in stories}) == 60


@pytest.mark.parametrize("size", SIZES)
def test_no_held_out_text_or_set_of_numbers_is_ever_trained_on(size):
    held_out = make_stories(40, 1, size=size, is_held_out=True)
    numbers, texts = {story.number_set for story in held_out}, {story.text for story in held_out}
    for seed in (1, 2):
        training = make_stories(80, seed, size=size)
        assert not numbers & {story.number_set for story in training}
        assert not texts & {story.text for story in training}
    assert all(is_held_out_set(story.number_set) for story in held_out)


def test_difficulties_are_drawn_evenly():
    counts = Counter(story.difficulty for story in make_stories(300, 3))
    assert sorted(counts) == [1, 2, 3, 4, 5, 6]
    assert min(counts.values()) > 30


@pytest.mark.parametrize(("low", "high"), [(0, 3), (4, 3), (1, 7)])
def test_impossible_ranges_are_refused(low, high):
    with pytest.raises(ValueError, match="min_operations and max_operations"):
        make_stories(1, 0, low, high)


def test_a_story_survives_its_details():
    for story in make_stories(30, 5):
        assert Story.from_details(story.details()) == story
    with pytest.raises(ValueError, match="details"):
        Story.from_details({"question": "Q6a*2:"})


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
