import dataclasses

import numpy as np
import pytest
import torch

from exgrpo.jobs.training.engines.embedded import decoding
from exgrpo.jobs.training.engines.embedded.model import PolicyModel, generate
from tests.jobs.training.engines.embedded.prompts import plain_scores, ragged_prompts, sampler
from tests.jobs.training.engines.tiny_models import ARCHITECTURES, END, PACKED, build_policy

pytestmark = pytest.mark.slow

NUM_NEW = 24


def greedy_by_transformers(model, prompt):
    row = torch.from_numpy(prompt.astype(np.int64))[None]
    output = model.generate(row, attention_mask=torch.ones_like(row), max_new_tokens=NUM_NEW, do_sample=False)
    return output[0, prompt.size :].numpy()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_greedy_tokens_are_those_of_transformers(architecture):
    policy = build_policy(architecture)
    prompts = ragged_prompts(12)
    generated = generate(policy, prompts, NUM_NEW, sampler(0.0))
    lengths = set()
    for prompt, response in zip(prompts, generated, strict=True):
        np.testing.assert_array_equal(response.token_ids, greedy_by_transformers(policy.model, prompt))
        lengths.add(response.token_ids.size)
    assert policy.is_packed == (architecture in PACKED)
    assert len(lengths) > 1 or NUM_NEW in lengths


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_sampled_log_probs_and_entropies_are_those_of_a_plain_forward(architecture):
    temperature = 0.7
    policy = build_policy(architecture)
    prompts = [prompt for prompt in ragged_prompts(5) for _ in range(3)]
    for prompt, response in zip(prompts, generate(policy, prompts, NUM_NEW, sampler(temperature)), strict=True):
        log_probs, entropies = plain_scores(policy.model, prompt, response.token_ids, temperature)
        np.testing.assert_allclose(response.log_probs, log_probs, atol=1e-4)
        np.testing.assert_allclose(response.entropies, entropies, atol=1e-4)


@pytest.mark.parametrize("architecture", ["qwen2_tied", "gpt2"])
@pytest.mark.parametrize("num_new", [4, NUM_NEW])
def test_a_response_ends_with_its_first_end_token_or_is_truncated(architecture, num_new):
    policy = build_policy(architecture)
    responses = generate(policy, 3 * ragged_prompts(40), num_new, sampler(1.5))
    for response in responses:
        assert END not in response.token_ids[:-1]
        assert response.is_truncated == (response.token_ids[-1] != END)
        assert response.token_ids.size == num_new or not response.is_truncated
    assert {response.is_truncated for response in responses if response.token_ids.size == num_new} == {True, False}


def test_several_end_tokens_all_end_a_response():
    policy = build_policy()
    ends = torch.tensor([END, 5])
    responses = generate(dataclasses.replace(policy, end_token_ids=ends), ragged_prompts(40), NUM_NEW, sampler(1.5))
    last = {int(response.token_ids[-1]) for response in responses if not response.is_truncated}
    assert last == {END, 5}
    assert all(5 not in response.token_ids[:-1] for response in responses)


def test_equal_prompts_read_once_give_what_separate_ones_give():
    policy = build_policy("llama")
    prompts = ragged_prompts(4)
    together = generate(policy, [prompts[i] for i in (0, 1, 0, 2, 1, 0, 3)], NUM_NEW, sampler(0.0))
    for position, i in enumerate((0, 1, 0, 2, 1, 0, 3)):
        (alone,) = generate(policy, [prompts[i]], NUM_NEW, sampler(0.0))
        np.testing.assert_array_equal(together[position].token_ids, alone.token_ids)
        np.testing.assert_allclose(together[position].log_probs, alone.log_probs, atol=5e-5)


def test_dropping_finished_rows_changes_no_score(monkeypatch):
    policy = build_policy()
    prompts = ragged_prompts(30)
    dropped = generate(policy, prompts, NUM_NEW, sampler(0.0))
    monkeypatch.setattr(decoding, "COMPACTION_SHARE", 0.0)
    kept = generate(policy, prompts, NUM_NEW, sampler(0.0))
    for one, other in zip(dropped, kept, strict=True):
        np.testing.assert_array_equal(one.token_ids, other.token_ids)
        np.testing.assert_allclose(one.log_probs, other.log_probs, atol=5e-5)


def test_small_memory_splits_the_batch_and_keeps_the_order(monkeypatch):
    policy = build_policy()
    prompts = ragged_prompts(9)
    whole = generate(policy, prompts, NUM_NEW, sampler(0.0))
    sizes = []
    decode = type(policy.backend).decode
    monkeypatch.setattr(PolicyModel, "working_bytes", property(lambda _: 4 * 37 * 3 * 2 * 2 * 8 * 4))
    monkeypatch.setattr(
        type(policy.backend), "decode", lambda self, rows, *rest: sizes.append(len(rows)) or decode(self, rows, *rest)
    )
    for one, other in zip(whole, generate(policy, prompts, NUM_NEW, sampler(0.0)), strict=True):
        np.testing.assert_array_equal(one.token_ids, other.token_ids)
    assert len(sizes) > 1
    assert sum(sizes) == 9
