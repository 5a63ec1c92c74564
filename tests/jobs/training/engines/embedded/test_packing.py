import doctest

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from exgrpo.jobs.training.engines.embedded import packing, shared_prefixes
from exgrpo.jobs.training.engines.embedded.backend import PackedAttention
from exgrpo.jobs.training.engines.embedded.decoder import HeadShape
from exgrpo.jobs.training.engines.embedded.packing import (
    MIN_COLUMNS,
    NUM_BLOCKS,
    REPEATED_COST,
    QueryBlock,
    TokenSequence,
    pack_sequences,
    split_by_length,
    split_by_prompt,
)

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")


def sequence(prompt, response):
    return TokenSequence(np.asarray(prompt, dtype=np.int32), np.asarray(response, dtype=np.int32))


def prefixes_that_attend(packed):
    """The tokens that each input token attends to, itself last, by input token."""
    attended = {}
    slots = {slot: token for token, slot in enumerate(packed.slots.tolist())}
    first_query = first_key = 0
    for block in packed.blocks:
        for row in range(block.num_rows):
            keys = packed.keys[first_key + row * block.end :][: block.end]
            for column in range(block.first, block.end):
                slot = first_query + row * (block.end - block.first) + column - block.first
                if slot in slots:
                    assert packed.queries[slot] == keys[column] == slots[slot]
                    attended[slots[slot]] = keys[: column + 1].tolist()
        first_query += block.num_rows * (block.end - block.first)
        first_key += block.num_rows * block.end
    assert (first_query, first_key) == (packed.queries.numel(), packed.keys.numel())
    return attended


def test_packed_rows_by_hand():
    packed = pack_sequences(
        [sequence([7, 8], [1, 2]), sequence([9], [3, 4, 5]), sequence([7, 8], [6]), sequence([7, 8], [1, 2, 4])], CPU
    )
    assert packed.input_ids.tolist() == [7, 8, 1, 2, 9, 3, 4]
    assert packed.positions.tolist() == [0, 1, 2, 3, 0, 1, 2]
    assert packed.target_ids.tolist() == [1, 2, 4, 6, 3, 4, 5]
    assert packed.predictors.tolist() == [1, 2, 3, 1, 4, 5, 6]
    assert packed.responses.tolist() == [0, 1, 4, 5, 6, 3, 0, 1, 2]
    # The third sequence is the beginning of the first: it attends nowhere itself.
    assert packed.keys.tolist() == [0, 1, 2, 0, 4, 5, 6, 0, 0, 1, 2, 3]
    assert packed.queries.tolist() == packed.keys.tolist()
    assert packed.slots.tolist() == [0, 1, 2, 11, 4, 5, 6]
    assert packed.blocks == (QueryBlock(num_rows=3, first=0, end=4),)


@pytest.mark.parametrize("module", [packing, shared_prefixes])
def test_worked_examples_of_docstrings_hold(module):
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


tokens = st.lists(st.integers(0, 2), min_size=1, max_size=12)


@given(st.lists(st.tuples(tokens, tokens), min_size=1, max_size=20), st.integers(1, 24))
def test_every_distinct_prefix_goes_through_the_model_once_and_attends_to_itself(rows, width):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("exgrpo.jobs.training.engines.embedded.packing.MIN_COLUMNS", width)
        packed = pack_sequences([sequence(prompt, response) for prompt, response in rows], CPU)
    inputs = [prompt + response[:-1] for prompt, response in rows]
    prefixes = {tuple(item[: i + 1]) for item in inputs for i in range(len(item))}
    attended = prefixes_that_attend(packed)
    assert sorted(attended) == list(range(packed.input_ids.numel()))
    seen = {token: tuple(packed.input_ids[value].tolist()) for token, value in attended.items()}
    assert len(seen) == len(prefixes)
    assert set(seen.values()) == prefixes
    np.testing.assert_array_equal(packed.positions, [len(seen[token]) - 1 for token in range(len(seen))])
    for (prompt, response), targets in zip(rows, split_by_row(packed.responses, rows), strict=True):
        assert packed.target_ids[targets].tolist() == response
        expected = [tuple(prompt + response[:i]) for i in range(len(response))]
        assert [seen[int(token)] for token in packed.predictors[targets]] == expected
    pairs = set(zip(packed.predictors.tolist(), packed.target_ids.tolist(), strict=True))
    assert len(pairs) == packed.target_ids.numel()


def split_by_row(values, rows):
    return torch.split(values, [len(response) for _, response in rows])


def test_rows_attend_in_blocks_of_columns_where_they_have_tokens_that_no_row_before_has():
    width = 2 * MIN_COLUMNS
    long = list(range(NUM_BLOCKS * width))
    branch = [*long[: 2 * width], *[7] * (len(long) - 2 * width)]
    packed = pack_sequences([sequence(long, [1]), sequence(branch, [1])], CPU)
    assert packed.blocks == tuple(
        QueryBlock(1 if i < 2 else 2, first=i * width, end=(i + 1) * width) for i in range(NUM_BLOCKS)
    )


def test_short_rows_beside_a_long_one_are_hardly_padded():
    long = sequence(range(1000, 1000 + 10 * NUM_BLOCKS * MIN_COLUMNS), [1])
    short = [sequence(range(5 * i, 5 * i + 5), [1]) for i in range(100)]
    packed = pack_sequences([long, *short], CPU)
    assert packed.blocks[0] == QueryBlock(101, first=0, end=MIN_COLUMNS)
    assert packed.queries.numel() <= packed.input_ids.numel() + 100 * MIN_COLUMNS
    assert len(packed.blocks) == 1 + NUM_BLOCKS


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 60)), min_size=1, max_size=30), st.integers(1, 200))
def test_batches_hold_every_sequence_once_and_respect_the_budget(sizes, budget):
    sequences = [sequence(range(prompt), range(response)) for prompt, response in sizes]
    by_length, by_prompt = split_by_length(sequences, budget), split_by_prompt(sequences, budget)
    for batches in (by_length, by_prompt):
        assert sorted(i for batch in batches for i in batch) == list(range(len(sequences)))
    for batch in by_length:
        assert len(batch) == 1 or sum(sequences[i].num_inputs for i in batch) <= budget
    for batch in by_prompt:
        own = sum(sequences[i].token_ids.size - 1 for i in batch)
        sizes = [sequences[i].prompt_ids.size for i in batch]
        shared = sum((1 + (sizes.count(size) - 1) * REPEATED_COST) * size for size in set(sizes))
        assert len(batch) == 1 or own + shared <= budget + 1e-6
        assert [-sequences[i].num_inputs for i in batch] == sorted(-sequences[i].num_inputs for i in batch)


def test_sequences_of_one_prompt_stay_together():
    sequences = [sequence([i % 3] * 40, range(length)) for i, length in enumerate([9, 2, 5, 3, 8, 4])]
    assert split_by_prompt(sequences, 60) == [[0, 3], [4, 1], [2, 5]]
    assert split_by_length(sequences, 60) == [[0], [4], [2], [5], [3], [1]]
    assert split_by_prompt(sequences, 1000) == split_by_length(sequences, 1000) == [[0, 4, 2, 5, 3, 1]]


def rows_that_share(rng):
    """Rows of two prompts, some of which say the same for a while, to the end, or stop earlier."""
    response = rng.integers(0, 9, 90)
    responses = [response, response, response[:40], np.append(response[:40], 9), rng.integers(0, 9, 60), response[:1]]
    prompts = [rng.integers(0, 9, 30), rng.integers(0, 9, 5)]
    return [sequence(prompt, response) for prompt in prompts for response in responses]


def attention_to(heads, shape, prefix):
    outputs = []
    for head in range(shape.num_heads):
        key_head = shape.num_heads + head * shape.num_kv_heads // shape.num_heads
        scores = heads[prefix, key_head] @ heads[prefix[-1], head] * shape.head_dim**-0.5
        outputs.append(scores.softmax(0) @ heads[prefix, key_head + shape.num_kv_heads])
    return torch.cat(outputs)


@pytest.mark.parametrize("repeats_heads", [False, True])
@pytest.mark.parametrize("num_kv_heads", [4, 2])
def test_every_token_attends_to_its_prefix(num_kv_heads, repeats_heads):
    shape = HeadShape(num_heads=4, num_kv_heads=num_kv_heads, head_dim=8)
    packed = pack_sequences(rows_that_share(np.random.default_rng(0)), torch.device("cpu"))
    assert len(packed.blocks) > 2
    heads = torch.from_numpy(np.random.default_rng(1).normal(size=(packed.input_ids.numel(), shape.num_fused, 8)))
    attend = PackedAttention(packed, shape, torch.float64)
    attend.repeats_heads = repeats_heads
    attended = attend(0, heads)
    for token, prefix in prefixes_that_attend(packed).items():
        torch.testing.assert_close(attended[token], attention_to(heads, shape, prefix))
