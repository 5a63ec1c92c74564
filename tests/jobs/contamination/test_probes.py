"""A model that was trained on the questions of a benchmark is detected, one of other questions of that kind is not."""

import json
import random
import re

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from typer.testing import CliRunner

from jobs.cli.main import app
from jobs.contamination.probes import NUM_VERSIONS, overlap_shares, probe_model, with_other_numbers
from jobs.contamination.report import read_reports
from jobs.engines.embedded.model import wrap_model
from jobs.tasks.word_problems.question_set import make_stories
from jobs.training.answer_format import make_format_tokenizer

pytestmark = pytest.mark.slow
STORIES = make_stories(72, 0, 1, 2)
TEXTS = [story.text for story in STORIES]
BENCHMARK, OTHERS = TEXTS[:24], TEXTS[24:]
NUM_STEPS = 100


def train_on_texts(tokenizer, texts):
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=512, tie_word_embeddings=True, bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = LlamaForCausalLM(config)
    batch = tokenizer(texts, return_tensors="pt", padding=True)
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(NUM_STEPS):
        loss = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.eval()


@pytest.fixture(scope="module")
def tokenizer():
    return make_format_tokenizer(TEXTS, vocabulary_size=600)


@pytest.fixture(scope="module")
def contaminated(tokenizer):
    return train_on_texts(tokenizer, BENCHMARK + OTHERS[:24])


def test_a_model_that_was_trained_on_the_questions_is_detected_by_both_probes(contaminated, tokenizer):
    probe = probe_model(wrap_model(contaminated, tokenizer, torch.device("cpu")), BENCHMARK)
    assert (probe.num_compared, probe.num_versions) == (24, NUM_VERSIONS)
    assert probe.num_completed > 20 > 10 > probe.num_completed_changed
    assert probe.num_likeliest > 20
    assert probe.completion_p_value < 0.001
    assert probe.number_p_value < 0.001


def test_a_model_of_other_questions_of_that_kind_is_not(tokenizer):
    clean = train_on_texts(tokenizer, OTHERS)
    probe = probe_model(wrap_model(clean, tokenizer, torch.device("cpu")), BENCHMARK)
    assert probe.num_completed <= 1
    assert probe.completion_p_value > 0.05
    assert probe.number_p_value > 0.05


def test_the_command_keeps_a_report_of_model_and_training_data(contaminated, tokenizer, tmp_path):
    contaminated.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    rows = [
        {"prompt": [{"role": "user", "content": text}], "reward_model": {"ground_truth": "7"}, "data_source": "stories"}
        for text in TEXTS
    ]
    for name, chosen in (("scored", rows[:24]), ("trained", rows[12:])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in chosen), encoding="utf-8")
    arguments = ["eval", str(tmp_path / "model"), "--contamination", "-b", f"mine={tmp_path / 'scored.jsonl'}"]
    arguments += ["--data", str(tmp_path / "trained.jsonl"), "--runs-root", str(tmp_path / "runs"), "--json"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    (report,), _ = read_reports(tmp_path / "runs")
    # Twelve are in both files; one more shares a long phrase with another story.
    assert (report.benchmark, report.num_questions, report.num_overlapping) == ("mine", 24, 13)
    assert json.loads(result.stdout)["signs"] == report.signs()
    assert len(report.signs()) == 3


LONG = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"


def test_overlap_is_the_share_of_runs_of_13_words_that_training_has():
    # 15 words have 3 runs of 13; training has the first two.
    training = ["Zero one, two three four five six seven eight nine TEN eleven twelve thirteen fourteen!"]
    assert overlap_shares([LONG], training) == [pytest.approx(2 / 3)]
    assert overlap_shares([LONG], [LONG, "other"]) == [1.0]
    assert overlap_shares([LONG], []) == [0.0]


def test_a_short_question_overlaps_only_where_it_is_whole():
    assert overlap_shares(["What is 2 + 3?", "!"], ["what is 2 3"]) == [1.0, 0.0]
    assert overlap_shares(["What is 2 + 3?"], ["Now: what is 2 + 3?"]) == [0.0]


def test_other_numbers_have_as_many_digits_and_zeros_and_equal_ones_stay_equal():
    rng = random.Random(0)
    for _ in range(50):
        changed = with_other_numbers("Take 47 of 1200 pens, then 47 of 305.", rng)
        first, pens, again, rest = re.findall(r"\d+", changed)
        assert first == again != "47"
        assert (len(first), len(pens), len(rest)) == (2, 4, 3)
        assert pens.endswith("00")
        assert pens != "1200"
        assert rest != "305"
        assert re.sub(r"\d+", "", changed) == "Take  of  pens, then  of ."


@pytest.mark.parametrize("text", ["What is 2 + 3?", "In 2023 he was born.", "x^{10} + a_12", "no numbers", "3.14"])
def test_single_digits_years_powers_and_decimals_stay(text):
    assert with_other_numbers(text, random.Random(0)) is None
