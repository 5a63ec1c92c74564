import json

import numpy as np
import pytest
import torch

from exgrpo.jobs.actions.answering import ChatModel, ChatRequest, answer, find_model
from exgrpo.jobs.actions.queueing import queue_job
from exgrpo.jobs.runs.checkpoints import save_checkpoint
from exgrpo.jobs.runs.directory import CommandError, RunDirectory
from exgrpo.jobs.specs.train import parse_spec
from exgrpo.jobs.training.engines.embedded.model import generate, load_policy, score_sequences
from exgrpo.jobs.training.engines.embedded.packing import TokenSequence
from exgrpo.jobs.training.engines.embedded.sampling import Sampler
from exgrpo_core.bounded_json import seal
from exgrpo_core.errors import InputError
from tests.jobs.training.chat_model import make_chat_model

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_chat_model(tmp_path_factory.mktemp("chat"))


def test_answers_follow_the_chat_template_and_have_the_scores_of_the_model(model):
    asked, *answers = answer(ChatModel(str(model)), ChatRequest("How many?", 2, 0.8, 12))
    assert asked["prompt"] == "<|im_start|>user\nHow many?<|im_end|>\n<|im_start|>assistant\n"
    assert [record["sample"] for record in answers] == [1, 2]
    policy = load_policy(str(model), torch.device("cpu"))
    prompt_ids = np.array(policy.tokenizer.encode(asked["prompt"]), dtype=np.int32)
    assert asked["num_prompt_tokens"] == prompt_ids.size
    responses = generate(policy, [prompt_ids] * 2, 12, Sampler(0.8, torch.Generator().manual_seed(0)))
    scored = score_sequences(policy, [TokenSequence(prompt_ids, each.token_ids) for each in responses], 0.8)
    assert [record["num_tokens"] for record in answers] == [each.token_ids.size for each in responses]
    means = [entropies.mean() for entropies in scored.entropies]
    np.testing.assert_allclose([record["mean_entropy"] for record in answers], means, atol=1e-4)
    assert answers[0]["text"] != answers[1]["text"]


@pytest.mark.parametrize(
    ("prompt", "reason"), [("Hm", "2000"), ("a\udc80", "half of a character"), ("a<eos>", "control token")]
)
def test_a_prompt_that_does_not_fit_or_is_no_text_is_refused(model, prompt, reason):
    with pytest.raises(InputError, match=f"^prompt: .*{reason}"):
        list(answer(ChatModel(str(model)), ChatRequest(prompt, max_response_tokens=2000)))


@pytest.fixture
def run(tmp_path, model) -> RunDirectory:
    content = {
        "name": "mine", "model": {"source": str(model)}, "data": {"source": "word_problems", "template": "compact"},
        "algorithm": {"temperature": 0.7, "max_prompt_tokens": 200, "max_response_tokens": 48},
    }  # fmt: skip
    run = RunDirectory.open(tmp_path, queue_job(tmp_path, parse_spec(content, "test")))
    save_checkpoint(run.checkpoints_path, 5, lambda checkpoint: make_chat_model(checkpoint.policy))
    return run


def test_checkpoint_and_start_of_a_run_are_asked_as_the_run_asks(run, model):
    expected = ("compact", 0.7, 48)
    for target, source in (("mine@last", run.checkpoints_path / "step-00000005" / "policy"), ("mine@start", model)):
        found = find_model(run.path.parent, target)
        assert found.source == str(source)
        assert (found.template, found.temperature, found.max_response_tokens) == expected


def test_folder_is_asked_in_its_own_chat_template(model, tmp_path):
    assert find_model(tmp_path, str(model)) == ChatModel(str(model))


def test_a_start_that_is_gone_is_named(run):
    spec_path = run.path / "spec.json"
    spec_path.write_text(spec_path.read_text(encoding="utf-8").replace("chat", "gone"), encoding="utf-8")
    run.info_path.write_bytes(seal(json.dumps(run.read_run_info()).encode()))
    with pytest.raises(CommandError, match=r"@start: .*gone"):
        find_model(run.path.parent, "mine@start")
