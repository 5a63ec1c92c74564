import hashlib
import json
import random
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from jobs.engines.embedded.model import generate, load_policy
from jobs.engines.embedded.sampling import Sampler
from jobs.tasks.chains.demonstrators import make_tokenizer
from jobs.tasks.chains.oracle import judge_response
from jobs.tasks.chains.question_set import draw_problem
from jobs.training import warm_start
from jobs.training.answer_format import (
    AnswerFormatSettings,
    HeldAnswers,
    make_format_tokenizer,
    option_labels,
    write_answer,
)
from jobs.training.data_rows import DataError
from jobs.training.imitation import ImitationSettings, make_small_policy, train_by_imitation
from jobs.training.warm_start import (
    SHIPPED_WEIGHTS,
    WarmStartSettings,
    read_shipped,
    warm_answer_format,
    warm_model,
)

TINY = WarmStartSettings(num_layers=1, width=16, num_heads=2, num_steps=3, batch_size=4)
CHOICES = [
    "Which gas do plants take in?\n\nA) oxygen\nB) carbon dioxide\nC) helium\nD) neon\n",
    "What is the nutrient source for some fungi?\n\n1) sunlight\n2) oxygen\n3) carbon dioxide\n4) dead organisms\n",
    "Which is a mammal?\n\nA) trout\nB) bat\nC) wasp\n",
]


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


RECIPES = {1: "6e04ae010f15cef6"}


def test_a_changed_recipe_raises_its_version():
    """What a warm model sees, at the beginning, in the middle and at the end, and the shipped weights."""
    rng, chain_tokenizer = random.Random(0), make_tokenizer()
    drawn = [
        warm_start._draw_demonstration(WarmStartSettings(), share, rng, chain_tokenizer)
        for share in (0.1, 0.5, 0.9)
        for _ in range(50)
    ]
    formats = warm_start.AnswerFormatSettings()
    answers = HeldAnswers(CHOICES, formats, random.Random(0))
    content = [
        warm_start.SHA256, asdict(WarmStartSettings()), asdict(formats), warm_start.NUM_LAST_STEPS,
        warm_start.LAST_LEARNING_RATE, warm_start.LAST_MAX_ERROR, warm_start.LARGE_ERROR_SCALE,
        [[item.prompt_ids.tolist(), item.token_ids.tolist()] for item in drawn],
        [answers.draw(text, share) for share in (0.1, 0.9) for text in CHOICES for _ in range(10)],
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


def test_chance_answers_use_every_label_of_the_prompts_line_starts_evenly():
    assert [option_labels(text) for text in CHOICES] == [tuple("ABCD"), tuple("1234"), tuple("ABC")]
    assert option_labels("No options here. A) one only") == tuple("ABCD")
    rng = random.Random(0)
    answers = [write_answer(CHOICES[2], rng) for _ in range(3000)]
    assert {answers.count(rf"</think>\boxed{{{label}}}") > 900 for label in "ABC"} == {True}


def test_held_answers_change_as_often_as_asked_and_are_drawn_at_each_use_in_the_end():
    texts = [f"{number}?\nA) a\nB) b\nC) c\nD) d" for number in range(40)]
    settings = AnswerFormatSettings(held_share=0.8, num_drawings=2)
    answers = HeldAnswers(texts, settings, random.Random(0))
    drawn = {share: [answers.draw(text, share) for text in texts] for share in (0.0, 0.39, 0.41, 0.79)}
    assert drawn[0.0] == drawn[0.39]
    assert drawn[0.41] == drawn[0.79]
    assert drawn[0.0] != drawn[0.79]
    assert [answers.draw(text, 0.8) for text in texts] != [answers.draw(text, 0.8) for text in texts]


def test_the_format_tokenizer_gives_any_text_back():
    tokenizer = make_format_tokenizer(CHOICES, 400)
    assert len(tokenizer) <= 400
    for text in [*CHOICES, "Ünseen wörds \t\n 🎈", r"</think>\boxed{B}"]:
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert tokenizer.decode(ids, skip_special_tokens=True) == text
    assert tokenizer.tokenize(r"</think>\boxed{B}") == ["</think>", "\\boxed{", "B", "}"]


@pytest.mark.slow
def test_the_answer_format_model_answers_by_chance(tmp_path):
    names = ["oak", "bat", "iron", "snow", "rain", "salt", "wolf", "corn", "clay", "moss"]
    texts = [f"Which is {name}?\n\nA) {name} one\nB) two\nC) three\nD) four\n" for name in names]
    folder = warm_answer_format(texts, AnswerFormatSettings(num_steps=200, vocabulary_size=400), tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    torch.manual_seed(0)
    prompt = tokenizer(texts * 40, return_tensors="pt", padding=True, add_special_tokens=False)
    output = model.generate(
        input_ids=prompt.input_ids, attention_mask=prompt.attention_mask, max_new_tokens=8, do_sample=True, top_k=0
    )
    answers = tokenizer.batch_decode(output[:, prompt.input_ids.shape[1] :], skip_special_tokens=True)
    shares = {label: answers.count(rf"</think>\boxed{{{label}}}") / len(answers) for label in "ABCD"}
    assert sum(shares.values()) > 0.9
    assert all(0.1 < share < 0.45 for share in shares.values())
