import hashlib
import json
import random
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from exgrpo.jobs.tasks.chains.demonstrators import make_tokenizer
from exgrpo.jobs.tasks.chains.oracle import judge_response
from exgrpo.jobs.tasks.chains.question_set import draw_problem
from exgrpo.jobs.training import warm_start
from exgrpo.jobs.training.data_rows import DataError
from exgrpo.jobs.training.engines.embedded.model import generate, load_policy
from exgrpo.jobs.training.engines.embedded.sampling import Sampler
from exgrpo.jobs.training.warm_start import (
    SHIPPED_WEIGHTS,
    ImitationSettings,
    WarmStartSettings,
    make_small_policy,
    read_shipped,
    train_by_imitation,
    warm_model,
)

pytestmark = pytest.mark.slow

TINY = WarmStartSettings(num_layers=1, width=16, num_heads=2, num_steps=3, batch_size=4)


def weights(folder):
    return AutoModelForCausalLM.from_pretrained(folder).state_dict()


def test_the_warm_model_is_a_whole_folder_made_once(tmp_path):
    seen = []
    folder = warm_model(TINY, tmp_path, lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert (folder / "model.safetensors").is_file()
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]
    assert len(AutoTokenizer.from_pretrained(folder)) == AutoModelForCausalLM.from_pretrained(folder).config.vocab_size
    seen.clear()
    assert warm_model(TINY, tmp_path, lambda done, total: seen.append((done, total))) == folder
    assert seen == []


def test_the_warm_model_of_the_default_chains_is_shipped(tmp_path):
    folder = warm_model(WarmStartSettings(), tmp_path, lambda *_: pytest.fail("it is trained"))
    shipped, loaded = read_shipped(), weights(folder)
    assert loaded.keys() == shipped.keys()
    assert all(torch.equal(loaded[name], shipped[name]) for name in shipped)
    assert greedy_accuracy(load_policy(str(folder), torch.device("cpu"))) > 0.9


def greedy_accuracy(policy):
    rng = random.Random(64)
    problems = [draw_problem(rng, rng.randint(1, 10), 10) for _ in range(64)]
    prompts = [np.asarray(policy.tokenizer.encode(problem.text), dtype=np.int32) for problem in problems]
    with torch.no_grad():
        responses = generate(policy, prompts, 112, Sampler(0.0, torch.Generator()))
    texts = [str(policy.tokenizer.decode(item.token_ids, skip_special_tokens=True)) for item in responses]
    return sum(judge_response(*pair).is_correct for pair in zip(problems, texts, strict=True)) / len(problems)


RECIPES = {1: "2ab15e9f1887c893"}


def test_a_changed_recipe_raises_its_version():
    """What a warm model sees, at the beginning, in the middle and at the end, and the shipped weights."""
    rng, chain_tokenizer = random.Random(0), make_tokenizer()
    drawn = [
        warm_start._draw_demonstration(WarmStartSettings(), share, rng, chain_tokenizer)
        for share in (0.1, 0.5, 0.9)
        for _ in range(50)
    ]
    content = [
        warm_start.SHA256, asdict(WarmStartSettings()), warm_start.NUM_LAST_STEPS,
        warm_start.LAST_LEARNING_RATE, warm_start.LAST_MAX_ERROR, warm_start.LARGE_ERROR_SCALE,
        [[item.prompt_ids.tolist(), item.token_ids.tolist()] for item in drawn],
    ]  # fmt: skip
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
    assert RECIPES.get(warm_start.RECIPE) == digest, "raise RECIPE in jobs/training/warm_start.py"
    policy = make_small_policy(chain_tokenizer, 1, 16, 2, seed=0)
    loss = train_by_imitation(policy, lambda _: drawn[:8], ImitationSettings(20, 8e-3))
    assert loss == pytest.approx(3.5694, abs=2e-3), "raise RECIPE in jobs/training/warm_start.py"


def test_damaged_shipped_weights_are_refused(tmp_path):
    damaged = tmp_path / "weights.safetensors"
    damaged.write_bytes(SHIPPED_WEIGHTS.read_bytes()[:-1] + b"!")
    for path in (damaged, tmp_path / "missing"):
        with pytest.raises(DataError):
            read_shipped(path)


def test_one_finished_model_is_taught_several_rates_of_errors(tmp_path):
    steps = []
    low, high = (
        warm_model(replace(TINY, last_error_scale=scale), tmp_path, lambda _, total: steps.append(total))
        for scale in (0.5, 4.0)
    )
    assert steps.count(TINY.num_steps) == TINY.num_steps
    assert steps.count(warm_start.NUM_LAST_STEPS) == 2 * warm_start.NUM_LAST_STEPS
    assert not torch.equal(*(weights(folder)["model.embed_tokens.weight"] for folder in (low, high)))


def test_the_same_settings_make_the_same_weights_others_another_model_and_a_failed_build_leaves_nothing(tmp_path):
    torch.manual_seed(3)
    before = torch.get_rng_state()
    folder = warm_model(TINY, tmp_path / "a")
    torch.rand(7)
    torch.set_rng_state(before)
    first, second = weights(folder), weights(warm_model(TINY, tmp_path / "b"))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert torch.equal(torch.get_rng_state(), before)
    assert warm_model(replace(TINY, seed=1), tmp_path / "a") != folder

    def fail(_done, _total):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        warm_model(TINY, tmp_path / "c", fail)
    assert list((tmp_path / "c").iterdir()) == []
