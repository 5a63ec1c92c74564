from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from exgrpo.jobs.training.engines.embedded import decoding
from exgrpo.jobs.training.engines.embedded.model import generate
from exgrpo.jobs.training.engines.embedded.shared_prefixes import SharedPrefixes
from tests.jobs.training.engines.embedded.prompts import plain_scores, ragged_prompts, sampler
from tests.jobs.training.engines.tiny_models import build_policy

pytestmark = pytest.mark.slow

NUM_NEW = 24
CPU = torch.device("cpu")


def carry_out(cache, copies):
    assert not set(copies.sources.tolist()) & set(copies.targets.tolist())
    grown = cache + (copies.num_prefixes - len(cache)) * [""]
    for source, target in zip(copies.sources, copies.targets, strict=True):
        grown[target] = grown[source]
    return grown[: copies.num_prefixes]


@given(st.data(), st.lists(st.sampled_from("ab"), min_size=1, max_size=12))
def test_each_row_continues_its_own_tokens(data, texts):
    prompts = list(dict.fromkeys(texts))
    prefixes = SharedPrefixes(np.array([prompts.index(text) for text in texts]), vocabulary_size=3)
    cache, is_done = prompts, np.zeros(len(texts), dtype=np.bool_)
    for _ in range(6):
        is_done |= np.array(data.draw(st.lists(st.booleans(), min_size=len(texts), max_size=len(texts))))
        if is_done.all():
            break
        if data.draw(st.booleans()):
            order, copies = prefixes.keep_rows(np.flatnonzero(~is_done))
            cache, texts = carry_out(cache, copies), [texts[i] for i in order]
            is_done = np.zeros(len(texts), dtype=np.bool_)
            assert sorted(cache) == sorted(set(texts))
        if prefixes.is_separate:
            assert cache == texts
            break
        tokens = np.array(data.draw(st.lists(st.integers(0, 2), min_size=len(texts), max_size=len(texts))))
        next_ids, copies = prefixes.fork(tokens, is_done)
        cache = [item + str(token) for item, token in zip(carry_out(cache, copies), next_ids, strict=True)]
        texts = [text if is_done[i] else text + str(tokens[i]) for i, text in enumerate(texts)]
        live = [text for i, text in enumerate(texts) if not is_done[i]]
        shared = prefixes.locate_draws(CPU)
        assert len(set(shared.draw_index.tolist())) == len(texts)
        prefix_of_row = [index // shared.num_ranks for index in shared.draw_index.tolist()]
        assert shared.num_ranks == max(Counter(prefix_of_row).values())
        continued = [cache[prefix] for prefix in prefix_of_row]
        assert [text for i, text in enumerate(continued) if not is_done[i]] == live
        assert prefixes.all_forked == (len(set(live)) == len(live))


@pytest.mark.parametrize("architecture", ["qwen2_tied", "llama"])
def test_rows_that_share_a_prefix_and_fork_late_are_scored_as_by_a_plain_forward(architecture, monkeypatch):
    policy = build_policy(architecture)
    num_computed, num_drawn = [], []
    draw = decoding.Sampler.draw

    def counted(self, hidden, head, size, shared=None):
        draws = draw(self, hidden, head, size, shared)
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
    beginnings = {(i // 6, tuple(response.token_ids[:3])) for i, response in enumerate(responses)}
    assert len(beginnings) > 4
