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
    packed = pack_sequences([sequence([7, 8], [1, 2]), sequence([9], [3, 4, 5]), sequence([7, 8], [6])], CPU)
    assert packed.input_ids.tolist() == [7, 8, 9, 1, 3, 4]
    assert packed.positions.tolist() == [0, 1, 0, 2, 1, 2]
    assert packed.response_index.tolist() == [1, 3, 2, 4, 5, 1]
    assert packed.target_ids.tolist() == [1, 2, 3, 4, 5, 6]
    assert packed.sources.tolist() == [0, 1, 3, 2, 4, 5, 0, 1]
    assert packed.sources[packed.slots].tolist() == [0, 1, 2, 3, 4, 5]
    assert [(group.start, group.num_rows, group.num_columns) for group in packed.groups] == [(0, 2, 3), (6, 1, 2)]


lengths = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 60)), min_size=1, max_size=30)


@given(lengths)
def test_rows_stand_whole_in_their_groups_and_distinct_prompts_once(sizes):
    sequences = [
        sequence(np.arange(size) + 10 * (count % 2), 1000 * i + np.arange(count))
        for i, (size, count) in enumerate(sizes, 1)
    ]
    num_prompt_tokens = sum(size for size, _ in {(size, count % 2) for size, count in sizes})
    packed = pack_sequences(sequences, CPU)
    assert packed.input_ids.numel() == num_prompt_tokens + sum(count - 1 for _, count in sizes)
    np.testing.assert_array_equal(packed.sources[packed.slots], np.arange(packed.input_ids.numel()))
    inputs = [[*item.prompt_ids, *item.token_ids[:-1]] for item in sequences]
    longest_first = sorted(range(len(sizes)), key=lambda i: -len(inputs[i]))
    rows = [
        packed.sources[group.start + row * group.num_columns :][: group.num_columns]
        for group in packed.groups
        for row in range(group.num_rows)
    ]
    predicting = []
    for number, row in zip(longest_first, rows, strict=True):
        own = row[: len(inputs[number])]
        assert packed.input_ids[own].tolist() == inputs[number]
        assert packed.positions[own].tolist() == list(range(len(inputs[number])))
        predicting.append((number, own[sequences[number].prompt_ids.size - 1 :]))
    assert packed.sources.numel() <= np.ceil(sum(map(len, inputs)) / (1 - MAX_PADDING))
    in_order = [index for _, index in sorted(predicting, key=lambda own: own[0])]
    np.testing.assert_array_equal(packed.response_index, np.concatenate(in_order))
    np.testing.assert_array_equal(packed.target_ids, np.concatenate([item.token_ids for item in sequences]))


@given(lengths, st.integers(1, 200))
def test_batches_hold_every_sequence_once_and_respect_the_budget(sizes, budget):
    sequences = [sequence(range(prompt), range(response)) for prompt, response in sizes]
    batches = split_by_budget(sequences, budget)
    assert sorted(i for batch in batches for i in batch) == list(range(len(sequences)))
    for batch in batches:
        assert len(batch) == 1 or sum(sequences[i].num_inputs for i in batch) <= budget


def test_no_sequence_cannot_be_packed():
    with pytest.raises(ValueError, match="at least one"):
        pack_sequences([], CPU)
