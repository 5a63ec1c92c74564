import pytest

from exgrpo_core.errors import InputError
from exgrpo_core.verl_plugin.questions import read_questions

ROW = {
    "raw_prompt": [{"role": "user", "content": "12"}], "data_source": "toy", "reward_model": {"ground_truth": "3"},
    "extra_info": {"index": 7}, "dummy_tensor": object(),
}  # fmt: skip


def encode(messages):
    return [int(digit) for digit in messages[0]["content"]]


def test_a_row_is_a_question_with_the_columns_that_graders_read():
    first, second = read_questions([ROW, ROW | {"reward_model": {"ground_truth": "4"}}], encode, 2)
    assert (first.index, second.index) == (0, 1)
    assert first.prompt_ids.tolist() == [1, 2]
    assert first.answer == "3"
    assert first.metadata == {name: value for name, value in ROW.items() if name != "dummy_tensor"}
    assert first.question_id != second.question_id
    assert read_questions([ROW], encode, 2)[0].question_id == first.question_id


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (ROW | {"raw_prompt": [{"content": "123"}]}, "row 0, has 3"),
        (ROW | {"agent_name": "tool_agent"}, "row 0: .*tool_agent"),
    ],
)
def test_a_row_that_cannot_be_replayed_is_named(row, words):
    with pytest.raises(InputError, match=words):
        read_questions([row], encode, 2)
