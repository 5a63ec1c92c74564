import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exgrpo_core.experience_management.question_stream import QuestionStream, RetiredSet

pytestmark = pytest.mark.slow

NONE = np.zeros(10, dtype=np.bool_)


def mask(size, *indices):
    skip = np.zeros(size, dtype=np.bool_)
    skip[list(indices)] = True
    return skip


def test_every_question_comes_once_an_epoch_in_a_new_order():
    stream = QuestionStream(10, seed=3)
    first = stream.draw(5, NONE, ()).question_indices + stream.draw(5, NONE, ()).question_indices
    assert stream.state_dict()["epoch"] == 0
    second = stream.draw(10, NONE, ()).question_indices
    assert stream.state_dict()["epoch"] == 1
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second
    draws = [QuestionStream(10, seed).draw(10, NONE, ()).question_indices for seed in (3, 4)]
    assert draws[0] == first != draws[1]


def test_excluded_questions_come_back_first_at_the_next_draw():
    stream = QuestionStream(10, seed=0)
    order = QuestionStream(10, seed=0).draw(10, NONE, ()).question_indices
    assert stream.draw(3, NONE, {order[0], order[2]}).question_indices == [order[1], order[3], order[4]]
    assert stream.draw(3, NONE, ()).question_indices == [order[0], order[2], order[5]]


def test_what_had_to_wait_again_keeps_its_place_before_what_waited_behind_it():
    stream = QuestionStream(10, seed=0)
    order = QuestionStream(10, seed=0).draw(10, NONE, ()).question_indices
    stream.draw(1, NONE, order[:3])
    assert stream.draw(1, NONE, {order[0]}).question_indices == [order[1]]
    assert stream.draw(2, NONE, ()).question_indices == [order[0], order[2]]


def test_question_that_was_retired_while_it_waited_is_passed_over():
    stream = QuestionStream(10, seed=0)
    order = QuestionStream(10, seed=0).draw(10, NONE, ()).question_indices
    stream.draw(3, NONE, {order[0]})
    draw = stream.draw(6, mask(10, order[0]), ())
    assert not draw.ignored_skip
    assert order[0] not in draw.question_indices


def test_unretired_questions_go_first_when_too_few_are_left_and_then_all_of_the_data_set():
    draw = QuestionStream(4, seed=0).draw(3, mask(4, 0, 1, 2, 3), ())
    assert (draw.ignored_skip, len(set(draw.question_indices))) == (True, 3)
    draw = QuestionStream(6, seed=0).draw(4, mask(6, 0, 1, 2, 3), {5})
    assert draw.ignored_skip
    assert draw.question_indices[0] == 4
    assert set(draw.question_indices[1:]) <= {0, 1, 2, 3}
    assert len(set(draw.question_indices)) == 4


@pytest.mark.parametrize(("count", "exclude"), [(11, ()), (10, {3}), (-1, ())])
def test_more_questions_than_there_are_is_refused(count, exclude):
    with pytest.raises(ValueError, match=r"count: expected 0 to \d+ fresh questions .*, got"):
        QuestionStream(10, seed=0).draw(count, NONE, exclude)


@given(st.integers(0, 1000), st.integers(4, 25), st.data())
def test_draws_are_right_and_a_restored_stream_goes_on_with_the_same(seed, num_questions, data):
    stream = QuestionStream(num_questions, seed)
    rng = np.random.default_rng(seed)
    skip = np.zeros(num_questions, dtype=np.bool_)
    for _ in range(12):
        exclude = set(rng.choice(num_questions, rng.integers(0, 3), replace=False).tolist())
        count = data.draw(st.integers(0, num_questions - len(exclude)))
        copy = QuestionStream(num_questions, seed)
        copy.load_state_dict(json.loads(json.dumps(stream.state_dict())))
        draw = stream.draw(count, skip, exclude)
        assert copy.draw(count, skip, exclude) == draw
        assert copy.state_dict() == stream.state_dict()
        chosen = draw.question_indices
        assert len(set(chosen)) == len(chosen) == count
        assert not exclude & set(chosen)
        assert any(skip[index] for index in chosen) == draw.ignored_skip
        skip |= rng.random(num_questions) < 0.05


def test_long_runs_owe_no_question_a_turn_and_queue_none_twice_over():
    stream = QuestionStream(20, seed=0)
    rng = np.random.default_rng(0)
    counts = Counter()
    for _ in range(400):
        exclude = set(rng.choice(20, 5, replace=False).tolist())
        counts.update(stream.draw(5, np.zeros(20, dtype=np.bool_), exclude).question_indices)
    assert max(counts.values()) - min(counts.values()) <= 3
    assert len(stream.state_dict()["deferred"]) < 10


def test_retired_set_counts_members_once_and_comes_back_through_json():
    retired = RetiredSet(10)
    mask = retired.mask
    for index in (7, 2, 7):
        retired.add(index)
    assert (len(retired), 7 in retired, 3 in retired) == (2, True, False)
    assert np.flatnonzero(mask).tolist() == retired.sorted_members().tolist() == [2, 7]
    restored = RetiredSet(10)
    restored.add(1)
    restored.load_state_dict(json.loads(json.dumps(retired.state_dict(), default=lambda array: array.tolist())))
    assert restored.sorted_members().tolist() == [2, 7]
    assert len(restored) == 2
