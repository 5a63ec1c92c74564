import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from exgrpo.jobs.actions import answering
from exgrpo.jobs.evaluation import local_generators
from exgrpo.jobs.evaluation.generation import PromptedQuestion
from exgrpo.jobs.specs.train import parse_spec
from exgrpo.jobs.training import probe as probing
from exgrpo.jobs.training.engines.embedded.engine import EmbeddedEngine
from exgrpo.jobs.training.engines.embedded.model import GeneratedResponse, load_policy
from exgrpo.jobs.training.engines.tokenizer import load_tokenizer, response_texts
from tests.jobs.evaluation.tiny_evaluations import save_tiny_model

pytestmark = pytest.mark.slow

TEXT = "easy</think>7"
OTHER_END = "ANSWER: "


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model whose think tag is a special token, and which has two end tokens."""
    folder = save_tiny_model(tmp_path_factory.mktemp("thinking"))
    tokenizer = load_tokenizer(str(folder))
    tokenizer.add_special_tokens({"additional_special_tokens": ["</think>", OTHER_END]})
    tokenizer.save_pretrained(folder)
    path = folder / "generation_config.json"
    ends = [tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids(OTHER_END)]
    path.write_text(json.dumps(json.loads(path.read_text()) | {"eos_token_id": ends}))
    return str(folder)


def test_think_tags_stay_and_end_and_padding_go(folder):
    tokenizer = load_tokenizer(folder)
    ids = tokenizer.encode(TEXT)
    assert tokenizer.decode(ids, skip_special_tokens=True) == "easy7"
    end = tokenizer.convert_tokens_to_ids(OTHER_END)
    assert response_texts(tokenizer, [[*ids, end, tokenizer.eos_token_id, tokenizer.pad_token_id], ids], [end]) == [
        TEXT, TEXT,
    ]  # fmt: skip
    tokenizer.pad_token = None
    assert response_texts(tokenizer, [ids]) == [TEXT]


def test_texts_keep_the_spaces_that_a_tokenizers_settings_would_take_out(folder):
    tokenizer = load_tokenizer(folder)
    tokenizer.clean_up_tokenization_spaces = True
    text = "do n't , f (x) !"
    assert tokenizer.decode(tokenizer.encode(text)) != text
    assert response_texts(tokenizer, [tokenizer.encode(text)]) == [text]


def test_what_is_graded_probed_scored_and_chatted_has_its_think_tags(folder, monkeypatch):
    policy = load_policy(folder, torch.device("cpu"))
    ids = np.asarray(policy.tokenizer.encode(TEXT + OTHER_END), np.int32)
    numbers = np.zeros(ids.size, np.float32)
    response = GeneratedResponse(ids, numbers, numbers, False)
    for module in (probing, local_generators, answering):
        monkeypatch.setattr(module, "generate", lambda _policy, prompts, *_: [response] * len(prompts))

    [graded] = EmbeddedEngine._responses(SimpleNamespace(policy=policy), [response])
    generator = local_generators.EmbeddedGenerator(policy, 8)
    [scored] = generator.generate([PromptedQuestion("a", "How many?", (), 1.0)], frozenset("a"), 1, 0)
    _, chatted = answering.answer(answering.ChatModel(folder), answering.ChatRequest("How many?", 1, 1.0, 8))
    spec = parse_spec(
        {
            "model": {"source": folder, "device": "cpu"},
            "data": {"source": "word_problems"},
            "algorithm": {"max_prompt_tokens": 1000, "max_response_tokens": 8},
        },
        "test",
    )
    probed = probing.probe(spec, num_questions=1, num_samples=1)
    assert [graded.text, scored.samples[0].text, chatted["text"], probed.answers[0].text] == [TEXT] * 4
