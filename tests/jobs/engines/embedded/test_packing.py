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
    packed = pack_sequences([sequence([7, 8], [1, 2]), sequence([9], [3, 4, 5])], CPU)
    assert packed.input_ids.tolist() == [7, 8, 1, 9, 3, 4]
    assert packed.positions.tolist() == [0, 1, 2, 0, 1, 2]
    assert packed.response_index.tolist() == [1, 2, 3, 4, 5]
    assert packed.target_ids.tolist() == [1, 2, 3, 4, 5]
    assert packed.slots.tolist() == [0, 1, 2, 3, 4, 5]
    assert packed.num_slots == 6


lengths = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 60)), min_size=1, max_size=30)


@given(lengths)
def test_every_token_has_a_slot_of_its_own_in_order_and_little_padding(sizes):
    sequences = [sequence(range(prompt), range(response)) for prompt, response in sizes]
    packed = pack_sequences(sequences, CPU)
    slots = packed.slots.numpy()
    assert np.unique(slots).size == slots.size
    assert slots.max() < packed.num_slots
    starts = np.flatnonzero(packed.positions.numpy() == 0)
    for start, item in zip(starts, sequences, strict=True):
        np.testing.assert_array_equal(np.diff(slots[start : start + item.num_inputs]), 1)
    assert packed.num_slots <= np.ceil(slots.size / (1 - MAX_PADDING))
    assert packed.target_ids.numel() == sum(response for _, response in sizes)


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
