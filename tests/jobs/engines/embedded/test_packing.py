import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jobs.engines.embedded.packing import MAX_PADDING, TokenSequence, pack_sequences, split_by_budget

CPU = torch.device("cpu")


def sequence(prompt, response):
    return TokenSequence(np.asarray(prompt, dtype=np.int32), np.asarray(response, dtype=np.int32))


def test_packed_rows_by_hand():
    packed = pack_sequences(
        [sequence([7, 8], [1, 2]), sequence([9], [3, 4, 5]), sequence([7, 8], [6]), sequence([7, 8], [1, 2, 4])], CPU
    )
    assert packed.input_ids.tolist() == [7, 8, 1, 2, 9, 3, 4]
    assert packed.positions.tolist() == [0, 1, 2, 3, 0, 1, 2]
    assert packed.target_ids.tolist() == [1, 2, 4, 6, 3, 4, 5]
    assert packed.predictors.tolist() == [1, 2, 3, 1, 4, 5, 6]
    assert packed.responses.tolist() == [0, 1, 4, 5, 6, 3, 0, 1, 2]
    assert packed.sources.tolist() == [0, 1, 2, 3, 0, 1, 2, 4, 5, 6, 0, 1]
    assert packed.sources[packed.slots].tolist() == list(range(7))
    assert [(group.start, group.num_rows, group.num_columns) for group in packed.groups] == [
        (0, 1, 4),
        (4, 2, 3),
        (10, 1, 2),
    ]


tokens = st.lists(st.integers(0, 2), min_size=1, max_size=12)


@given(st.lists(st.tuples(tokens, tokens), min_size=1, max_size=20))
def test_every_distinct_history_goes_through_the_model_once_and_attends_in_whole_rows(rows):
    sequences = [sequence(prompt, response) for prompt, response in rows]
    packed = pack_sequences(sequences, CPU)
    inputs = [prompt + response[:-1] for prompt, response in rows]
    histories = {tuple(own[: i + 1]) for own in inputs for i in range(len(own))}
    assert packed.input_ids.numel() == len(histories)
    np.testing.assert_array_equal(packed.sources[packed.slots], np.arange(len(histories)))
    longest_first = sorted(range(len(rows)), key=lambda i: -len(inputs[i]))
    slots = [
        packed.sources[group.start + row * group.num_columns :][: group.num_columns]
        for group in packed.groups
        for row in range(group.num_rows)
    ]
    predicting = {}
    for number, row in zip(longest_first, slots, strict=True):
        own = row[: len(inputs[number])]
        assert packed.input_ids[own].tolist() == inputs[number]
        assert packed.positions[own].tolist() == list(range(len(inputs[number])))
        predicting[number] = own[len(rows[number][0]) - 1 :]
    assert packed.sources.numel() <= np.ceil(sum(map(len, inputs)) / (1 - MAX_PADDING))
    in_order = np.concatenate([predicting[number] for number in range(len(rows))])
    np.testing.assert_array_equal(packed.predictors[packed.responses], in_order)
    np.testing.assert_array_equal(packed.target_ids[packed.responses], [token for _, own in rows for token in own])
    pairs = set(zip(packed.predictors.tolist(), packed.target_ids.tolist(), strict=True))
    assert len(pairs) == packed.target_ids.numel()


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 60)), min_size=1, max_size=30),
    st.integers(1, 200),
)
def test_batches_hold_every_sequence_once_and_respect_the_budget(sizes, budget):
    sequences = [sequence(range(prompt), range(response)) for prompt, response in sizes]
    batches = split_by_budget(sequences, budget)
    assert sorted(i for batch in batches for i in batch) == list(range(len(sequences)))
    for batch in batches:
        assert len(batch) == 1 or sum(sequences[i].num_inputs for i in batch) <= budget


def test_no_sequence_cannot_be_packed():
    with pytest.raises(ValueError, match="at least one"):
        pack_sequences([], CPU)
