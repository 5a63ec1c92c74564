import json

import numpy as np
import pytest

from exgrpo_core.experience_management.question_stream import RetiredSet


def test_members_are_counted_once_and_sorted():
    retired = RetiredSet(10)
    for index in (7, 2, 7):
        retired.add(index)
    assert len(retired) == 2
    assert 7 in retired
    assert 3 not in retired
    assert retired.sorted_members().tolist() == [2, 7]
    assert retired.sorted_members().dtype == np.int64


def test_mask_follows_the_set_and_cannot_be_written():
    retired = RetiredSet(4)
    mask = retired.mask
    retired.add(1)
    assert mask.tolist() == [False, True, False, False]
    with pytest.raises(ValueError, match="read-only"):
        mask[0] = True


def test_saved_set_comes_back_through_json():
    retired = RetiredSet(10)
    retired.add(3)
    retired.add(9)
    restored = RetiredSet(10)
    restored.add(1)
    restored.load_state_dict(json.loads(json.dumps(retired.state_dict(), default=lambda array: array.tolist())))
    assert restored.sorted_members().tolist() == [3, 9]
    assert len(restored) == 2


@pytest.mark.parametrize("state", [{"num_questions": 11, "members": []}, {"num_questions": 10, "members": [10]}])
def test_set_of_other_questions_is_refused(state):
    with pytest.raises(ValueError, match="retired set"):
        RetiredSet(10).load_state_dict(state)
