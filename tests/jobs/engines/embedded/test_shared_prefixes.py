from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jobs.engines.embedded import decoding
from jobs.engines.embedded.generation import generate
from jobs.engines.embedded.shared_prefixes import SharedPrefixes
from tests.jobs.engines.embedded.prompts import plain_scores, ragged_prompts, sampler
from tests.jobs.engines.tiny_models import build_policy

NUM_NEW = 24
CPU = torch.device("cpu")


def whole(*values):
    return np.array(values, dtype=np.int64)


def flags(*values):
    return np.array(values, dtype=np.bool_)


def of(moves):
    return moves.sources.tolist(), moves.targets.tolist(), moves.num_histories


def test_rows_part_by_hand():
    histories = SharedPrefixes(whole(0, 0, 1, 0, 1), vocabulary_size=10)
    sharing = histories.locate_draws(CPU)
    assert (sharing.num_ranks, sharing.draw_index.tolist()) == (3, [0, 1, 3, 2, 4])

    next_ids, moves = histories.part(whole(7, 5, 4, 7, 4), flags(False, False, False, False, False))
    assert next_ids.tolist() == [5, 4, 7]
    assert of(moves) == ([0], [2], 3)
    assert histories.locate_draws(CPU).draw_index.tolist() == [4, 0, 2, 5, 3]

    next_ids, moves = histories.part(whole(1, 2, 8, 1, 9), flags(False, True, False, False, False))
    assert next_ids[1:].tolist() == [8, 1, 9]
    assert of(moves) == ([1], [3], 4)

    order, moves = histories.keep_rows(whole(0, 2, 3, 4))
    assert order.tolist() == [4, 2, 0, 3]
    assert of(moves) == ([3], [0], 3)

    next_ids, moves = histories.part(whole(9, 8, 2, 1), flags(False, False, False, False))
    assert next_ids.tolist() == [9, 8, 1, 2]
    assert of(moves) == ([2], [3], 4)
    assert histories.all_forked
    order, moves = histories.keep_rows(whole(0, 1, 2, 3))
    assert order.tolist() == [0, 1, 3, 2]
    assert of(moves) == ([], [], 4)
    assert histories.is_separate
    assert histories.locate_draws(CPU) is None


def carry_out(cache, moves):
    """Do to a list of texts what is done to the cache's rows."""
    assert not set(moves.sources.tolist()) & set(moves.targets.tolist())
    grown = cache + (moves.num_histories - len(cache)) * [""]
    for source, target in zip(moves.sources, moves.targets, strict=True):
        grown[target] = grown[source]
    return grown[: moves.num_histories]


@given(st.data(), st.lists(st.sampled_from("ab"), min_size=1, max_size=12))
def test_each_row_continues_what_it_said_itself(data, said):
    prompts = list(dict.fromkeys(said))
    histories = SharedPrefixes(np.array([prompts.index(own) for own in said]), vocabulary_size=3)
    cache, is_done = prompts, np.zeros(len(said), dtype=np.bool_)
    for _ in range(6):
        is_done |= np.array(data.draw(st.lists(st.booleans(), min_size=len(said), max_size=len(said))))
        if is_done.all():
            break
        if data.draw(st.booleans()):
            order, moves = histories.keep_rows(np.flatnonzero(~is_done))
            cache, said = carry_out(cache, moves), [said[i] for i in order]
            is_done = np.zeros(len(said), dtype=np.bool_)
            assert sorted(cache) == sorted(set(said))
        if histories.is_separate:
            assert cache == said
            break
        tokens = np.array(data.draw(st.lists(st.integers(0, 2), min_size=len(said), max_size=len(said))))
        next_ids, moves = histories.part(tokens, is_done)
        cache = [item + str(token) for item, token in zip(carry_out(cache, moves), next_ids, strict=True)]
        said = [entry if is_done[i] else entry + str(tokens[i]) for i, entry in enumerate(said)]
        live = [value for i, value in enumerate(said) if not is_done[i]]
        sharing = histories.locate_draws(CPU)
        assert len(set(sharing.draw_index.tolist())) == len(said)
        histories_of_rows = [place // sharing.num_ranks for place in sharing.draw_index.tolist()]
        assert sharing.num_ranks == max(Counter(histories_of_rows).values())
        found = [cache[history] for history in histories_of_rows]
        assert [own for i, own in enumerate(found) if not is_done[i]] == live
        assert histories.all_forked == (len(set(live)) == len(live))


@pytest.mark.parametrize("architecture", ["qwen2_tied", "llama"])
def test_rows_that_stay_together_and_part_late_are_scored_as_by_a_plain_forward(architecture, monkeypatch):
    policy = build_policy(architecture)
    num_computed, num_drawn = [], []
    draw = decoding.Sampler.draw

    def counted(self, hidden, head, size, sharing=None):
        draws = draw(self, hidden, head, size, sharing)
        num_computed.append(len(hidden))
        num_drawn.append(len(draws.token_ids))
        return draws

    monkeypatch.setattr(decoding.Sampler, "draw", counted)
    prompts = [prompt for prompt in ragged_prompts(4) for _ in range(6)]
    responses = generate(policy, prompts, NUM_NEW, sampler(0.5))
    for prompt, response in zip(prompts, responses, strict=True):
        log_probs, entropies = plain_scores(policy.model, prompt, response.token_ids, 0.5)
        np.testing.assert_allclose(response.log_probs, log_probs, atol=1e-4)
        np.testing.assert_allclose(response.entropies, entropies, atol=1e-4)
    assert num_computed[0] == 4
    assert all(computed <= drawn for computed, drawn in zip(num_computed, num_drawn, strict=True))
    assert sum(num_computed) < 0.9 * sum(num_drawn)
    said = {(i // 6, tuple(response.token_ids[:3])) for i, response in enumerate(responses)}
    assert len(said) > 4


def test_equal_rows_at_temperature_zero_never_part():
    policy = build_policy()
    (prompt,) = ragged_prompts(1)
    responses = generate(policy, 5 * [prompt], NUM_NEW, sampler(0.0))
    assert len({response.token_ids.tobytes() for response in responses}) == 1
