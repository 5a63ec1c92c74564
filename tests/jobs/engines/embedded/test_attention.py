import numpy as np
import pytest
import torch

from jobs.engines.embedded.backend import PackedAttention
from jobs.engines.embedded.decoder_weights import HeadShape
from jobs.engines.embedded.packing import pack_sequences
from tests.jobs.engines.embedded.packs import prefixes_that_attend, sequence


def rows_that_share(rng):
    """Rows of two prompts, some of which say the same for a while, to the end, or stop earlier."""
    response = rng.integers(0, 9, 90)
    responses = [response, response, response[:40], np.append(response[:40], 9), rng.integers(0, 9, 60), response[:1]]
    prompts = [rng.integers(0, 9, 30), rng.integers(0, 9, 5)]
    return [sequence(prompt, response) for prompt in prompts for response in responses]


def attention_to(heads, shape, prefix):
    """Attention of the last token of a prefix, written out head by head."""
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
