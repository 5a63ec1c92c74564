"""TRL's GRPOTrainer for real: a tiny model, some steps; only `make test-trl` runs it."""

import itertools
import json
import subprocess
from pathlib import Path

import pytest

from exgrpo_core.recording.lines import parse_trajectory
from tests.records import lines_of

pytestmark = [pytest.mark.trl, pytest.mark.slow]

EXGRPO = Path(__file__).parents[3] / ".venv" / "bin" / "exgrpo"


def completion(generation, index):
    """Return the tokens of a completion, which ends; the four of a prompt have other lengths."""
    return [4] * (1 + (generation + index) % 4 + index // 4) + [1]


def completion_or_copy(generation, index):
    """Return a completion, as the last of a prompt the one before it without its end, which has the same text."""
    return completion(generation, index) if index % 4 < 3 else completion(generation, index - 1)[:-1]


def train(folder, completion_of=completion, **settings):
    """Record a run of TRL into a folder, and return where; what a model samples differs between processors."""
    pytest.importorskip("trl", reason="make test-trl installs it")
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM, set_seed
    from trl import GRPOConfig, GRPOTrainer

    from exgrpo_core.recording.trl import RecordingCallback

    words = {word: number for number, word in enumerate(["[PAD]", "[EOS]", "[UNK]", *"0123456789+=?"])}
    inner = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="[PAD]", eos_token="[EOS]", unk_token="[UNK]")
    set_seed(0)
    shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = Qwen2ForCausalLM(Qwen2Config(vocab_size=len(words), num_key_value_heads=2, **shape))

    def length(completions, log_extra=None, **_):
        if log_extra:
            log_extra("first", [text[:1] for text in completions])
        return [float(len(text)) for text in completions]

    def nothing(completions, **_):
        return [None] * len(completions)

    generations = itertools.count()

    def generate(prompts, trainer):
        generation = next(generations)
        ids = [completion_of(generation, index) for index in range(len(prompts))]
        return {"prompt_ids": trainer.processing_class(prompts)["input_ids"], "completion_ids": ids, "logprobs": None}

    config = GRPOConfig(
        output_dir=str(folder / "trl"), num_generations=4, max_completion_length=6, max_steps=4, logging_steps=1,
        report_to=[], use_cpu=True, save_strategy="no", reward_weights=[0.5, 1.0], bf16=False, **settings,
    )  # fmt: skip
    rows = Dataset.from_dict({"prompt": ["1+1=?", "2+2=?"]})
    trainer = GRPOTrainer(
        model, [length, nothing], args=config, train_dataset=rows, processing_class=tokenizer, rollout_func=generate
    )
    callback = RecordingCallback(trainer, "by TRL", folder)
    trainer.add_callback(callback)
    trainer.train()
    return callback.run.path


@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(not EXGRPO.exists(), reason="make install makes .venv, whose command executes the steps again")
@pytest.mark.parametrize(
    ("loss_type", "scale_rewards", "loss", "advantages"),
    [
        ("grpo", "group", "mean over sequences of the mean over tokens", "0.0001), sample deviation"),
        ("bnpo", "batch", "mean over all tokens", "TRL, scale_rewards=batch"),
        ("dr_grpo", "none", "sum over tokens by max_completion_length of 6 and sequence", "Dr.GRPO"),
        ("dapo", "group", "mean over all tokens", "0.0001), sample deviation"),
    ],
)
def test_loss_and_advantages_of_each_kind_are_named(tmp_path, loss_type, scale_rewards, loss, advantages):
    run = train(tmp_path, loss_type=loss_type, scale_rewards=scale_rewards, per_device_train_batch_size=8)
    words = [EXGRPO, "replay", run.name, "--steps", "1:4", "--json", "--runs-root", tmp_path]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    rows = json.loads(done.stdout)
    assert "differs" not in {row["outcome"] for row in rows}
    for compared, formula in (("loss aggregation", loss), ("formula of advantages", advantages)):
        found = [row["formulas"] for row in rows if row["compared"] == compared and row["outcome"] == "same"]
        assert len(found) == 4
        common = [name for name in found[0] if all(name in others for others in found)]
        assert formula in common[0], common


@pytest.mark.filterwarnings("ignore")
def test_a_run_of_trl_has_its_prompts_completions_rewards_and_metrics(tmp_path):
    run = train(tmp_path, completion_or_copy, per_device_train_batch_size=4, steps_per_generation=2)
    attempt = run / "attempts" / "0001"
    assert json.loads((attempt / "outcome.json").read_text())["status"] == "finished"
    lines = lines_of(run)
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
    counts = [facts.get("num_tokens") for _, (_, facts) in trajectories]
    lengths = [len(completion(generation, index)) for generation in range(2) for index in range(8)]
    # The last two of a prompt differ in length alone, so that nothing tells their counts apart.
    assert counts == [None if index % 4 > 1 else length for index, length in enumerate(lengths)]
    assert not [line for line in lines if line["kind"] == "lost"]
