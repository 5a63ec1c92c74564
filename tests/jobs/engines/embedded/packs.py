"""Sequences to pack, and what a pack makes of them."""

import numpy as np

from jobs.engines.embedded.packing import TokenSequence


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
