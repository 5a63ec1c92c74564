"""Blocks of rows: how rows are shared among ranks, read as a batch, and answered."""

import pickle

import numpy as np
import pytest

pytestmark = [pytest.mark.verl]


def tokens(*ids):
    return np.array(ids, dtype=np.int32)


def numbers(*values):
    return np.array(values, dtype=np.float32)


def rows():
    """Return a rollout of 5 tokens between stored trajectories of 4 and 3."""
    from exgrpo_core.verl_plugin.rows import QueuedRow, TokenRow

    return [
        TokenRow(tokens(1), tokens(2, 3, 0), numbers(-1, -2, -3), {"advantages": numbers(0.5)}),
        QueuedRow("a", 5, {"advantages": numbers(-1)}),
        TokenRow(tokens(1, 2), tokens(0), numbers(-4), {"advantages": numbers(0.25)}),
    ]


def queued_columns():
    import torch

    floats = {"log_probs": [-9.0, -0.5, -0.25, -9.0, -9.0], "rollout_log_probs": [-0.75, -0.5]}
    columns = {name: [torch.tensor(values)] for name, values in floats.items()}
    return columns | {"prompts": [torch.tensor([7, 8, 9])], "responses": [torch.tensor([4, 0])]}


def lists(column):
    return [row.tolist() for row in column.unbind()]


def test_any_number_of_rows_gives_each_rank_as_many_and_what_pads_is_not_in_the_loss():
    from exgrpo_core.verl_plugin.blocks import make_blocks, read_block

    blocks, shares = make_blocks(rows(), 2, ["advantages"], {"epochs": 1})
    assert sorted(position for share in shares for position in share) == [0, 1, 2, 3]
    assert [len(block.is_in_loss) for block in blocks] == [2, 2]
    in_loss = {
        p: flag
        for block, share in zip(blocks, shares, strict=True)
        for p, flag in zip(share, block.is_in_loss, strict=True)
    }
    assert in_loss == {0: True, 1: True, 2: True, 3: False}
    assert [key for block in blocks for key in block.keys] == ["a"]
    blocks, _ = make_blocks([], 2, ["advantages"], {})
    assert [block.is_in_loss.tolist() for block in blocks] == [[False], [False]]
    assert [lists(read_block(block, {})["response_mask"]) for block in blocks] == [[[0]], [[0]]]


@pytest.mark.parametrize(("num_ranks", "num_rows"), [(2, 128), (8, 1024), (128, 1024)])
def test_ranks_get_as_many_rows_and_as_balanced_tokens_as_verl_gives_them(num_ranks, num_rows):
    from verl.utils.seqlen_balancing import get_seqlen_balanced_partitions

    from exgrpo_core.verl_plugin.blocks import deal

    lengths = np.random.default_rng(0).integers(50, 1500, num_rows)
    shares = deal(lengths, num_ranks)
    assert sorted(shares.ravel()) == list(range(num_rows))
    by_verl = get_seqlen_balanced_partitions(lengths.tolist(), num_ranks, equal_size=True)
    assert lengths[shares].sum(axis=1).max() <= 1.005 * max(lengths[share].sum() for share in by_verl)


def test_a_rank_reads_its_block_as_the_batch_of_its_rows_in_order():
    from exgrpo_core.verl_plugin.blocks import make_blocks, read_block

    (block,), (share,) = make_blocks(rows(), 1, ["advantages"], {"epochs": 1})
    batch = read_block(pickle.loads(pickle.dumps(block)), queued_columns(), ("log_probs", "rollout_log_probs"))
    order = {position: i for i, position in enumerate(share)}

    def in_given_order(name):
        column = lists(batch[name])
        return [column[order[position]] for position in range(3)]

    assert in_given_order("input_ids") == [[1, 2, 3, 0], [7, 8, 9, 4, 0], [1, 2, 0]]
    assert in_given_order("position_ids") == [[0, 1, 2, 3], [0, 1, 2, 3, 4], [0, 1, 2]]
    assert in_given_order("response_mask") == in_given_order("loss_mask") == [[1, 1, 1], [1, 1], [1]]
    assert in_given_order("rollout_log_probs") == [[-1.0, -2.0, -3.0], [-0.75, -0.5], [-4.0]]
    assert in_given_order("log_probs") == [[0.0] * 4, [-9.0, -0.5, -0.25, -9.0, -9.0], [0.0] * 3]
    assert in_given_order("advantages") == [[0.5], [-1.0], [0.25]]
    assert batch["epochs"] == 1


def test_answers_of_ranks_are_of_the_tokens_of_responses_in_the_order_of_the_rows():
    import torch
    from tensordict import TensorDict

    from exgrpo_core.verl_plugin.blocks import answer_scored, in_given_order, make_blocks, read_block
    from exgrpo_core.verl_plugin.rows import token_checksums

    whole = [row for row in rows() if hasattr(row, "token_ids")]
    blocks, shares = make_blocks([*whole, *whole[:1]], 2, (), {})
    answers = []
    for block in blocks:
        batch = read_block(block, {})
        # A value is of the token after it.
        following = [row.roll(-1).float() for row in batch["input_ids"].unbind()]
        column = torch.nested.as_nested_tensor(following, layout=torch.jagged)
        scored = TensorDict({"log_probs": column, "entropy": column}, batch_size=[len(following)])
        answers.append(answer_scored(block, batch, scored, {}))
    columns = in_given_order(shares, answers, 3)
    prompts, responses = zip(*((row.prompt_ids, row.token_ids) for row in [*whole, whole[0]]), strict=True)
    assert columns["checksums"] == token_checksums(prompts, responses)
    for name in ("log_probs", "entropy"):
        assert [row.tolist() for row in columns[name]] == [[2.0, 3.0, 0.0], [0.0], [2.0, 3.0, 0.0]]
        assert columns[name][0].dtype == np.float32


def test_what_losses_saw_comes_back_in_the_order_of_the_rows_and_nothing_of_what_pads():
    from exgrpo_core.verl_plugin.blocks import answer_seen, in_given_order, make_blocks

    blocks, shares = make_blocks(rows(), 2, ["advantages"], {})
    seen = [[{"update_log_probs": numbers(*[-position] * 2)} for position in share] for share in shares]
    columns = in_given_order(shares, [answer_seen(*pair) for pair in zip(blocks, seen, strict=True)], 3)
    assert [row.tolist() for row in columns["update_log_probs"]] == [[0.0, 0.0], [-1.0, -1.0], [-2.0, -2.0]]
    assert in_given_order(shares, [answer_seen(block, []) for block in blocks], 3) == {}
