"""TRL's GRPOTrainer for real: a tiny model, two steps with a generation each; part of `make test-trl` alone."""

import json

import pytest

from exgrpo_core.recording.lines import parse_trajectory
from tests.records import lines_of

pytestmark = [pytest.mark.trl, pytest.mark.slow]


@pytest.mark.filterwarnings("ignore")
def test_a_run_of_trl_has_its_prompts_completions_rewards_and_metrics(tmp_path):
    pytest.importorskip("trl", reason="make test-trl installs it")
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
    from trl import GRPOConfig, GRPOTrainer

    from exgrpo_core.recording.trl import RecordingCallback

    words = {word: number for number, word in enumerate(["[PAD]", "[EOS]", "[UNK]", *"0123456789+=?"])}
    inner = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="[PAD]", eos_token="[EOS]", unk_token="[UNK]")
    shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = Qwen2ForCausalLM(Qwen2Config(vocab_size=len(words), num_key_value_heads=2, **shape))

    def length(completions, log_extra=None, **_):
        if log_extra:
            log_extra("first", [text[:1] for text in completions])
        return [float(len(text)) for text in completions]

    def nothing(completions, **_):
        return [None] * len(completions)

    config = GRPOConfig(
        output_dir=str(tmp_path / "trl"), per_device_train_batch_size=4, num_generations=4, steps_per_generation=2,
        max_completion_length=6, max_steps=4, logging_steps=1, report_to=[], use_cpu=True, save_strategy="no",
        reward_weights=[0.5, 1.0], bf16=False,
    )  # fmt: skip
    rows = Dataset.from_dict({"prompt": ["1+1=?", "2+2=?"]})
    trainer = GRPOTrainer(model, [length, nothing], args=config, train_dataset=rows, processing_class=tokenizer)
    callback = RecordingCallback(trainer, "by TRL", tmp_path)
    trainer.add_callback(callback)
    trainer.train()
    attempt = callback.run.path / "attempts" / "0001"
    assert json.loads((attempt / "outcome.json").read_text())["status"] == "finished"
    lines = lines_of(callback.run.path)
    metrics = [line for line in lines if line["kind"] == "metrics"]
    assert {line["step"] for line in metrics} == {1, 2, 3, 4}
    assert any("reward" in line["metrics"] for line in metrics)
    trajectories = [(line["step"], parse_trajectory(line)) for line in lines if line["kind"] == "trajectory"]
    assert [step for step, _ in trajectories] == [1] * 8 + [3] * 8
    for _, ((prompt, response), facts) in trajectories:
        assert prompt.text in {"1+1=?", "2+2=?"}
        assert response.is_generated
        assert facts["reward"] == pytest.approx(0.5 * len(response.text))
        assert facts["extra"]["reward/length"] == len(response.text)
        assert facts["advantage"] is not None
    assert not [line for line in lines if line["kind"] == "lost"]
