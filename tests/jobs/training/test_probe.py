import dataclasses
import re

import pytest
from typer.testing import CliRunner

from exgrpo.jobs.cli.main import app
from exgrpo.jobs.specs.train import parse_spec
from exgrpo.jobs.training.probe import probe
from exgrpo.jobs.training.probe_report import ProbedAnswer, ProbeReport
from tests.jobs.cli.invoked import exgrpo

pytestmark = pytest.mark.slow

GOOD = ProbeReport("Q", 4, 4, 0.4, 0.9, 0.1, 0.5, 0.04, 40.0, 3.0, (ProbedAnswer("\\boxed{3}", "3", "correct"),))


def spec_of(folder):
    return parse_spec(
        {
            "model": {"source": str(folder), "device": "cpu"},
            "data": {"source": "word_problems"},
            "algorithm": {"max_prompt_tokens": 400, "max_response_tokens": 8},
        },
        "test",
    )


def test_random_model_never_ends_or_answers_and_writes_noise(chat_model):
    report = probe(spec_of(chat_model), num_questions=3, num_samples=2)
    assert (report.num_questions, report.num_samples, len(report.answers)) == (3, 2, 3)
    assert (report.pass_rate, report.format_rate, report.truncation_rate) == (0.0, 0.0, 1.0)
    assert report.mean_tokens == 8.0
    assert 5.0 < report.mean_entropy < 6.5  # log 600 = 6.4
    assert report.prompt.endswith("<|im_start|>assistant\n")
    assert [answer.verdict for answer in report.answers] == ["unparsed"] * 3
    assert len(report.advice()) == 4
    assert probe(spec_of(chat_model), num_questions=3, num_samples=2).mean_entropy == report.mean_entropy


@pytest.mark.parametrize(
    ("change", "advice"),
    [
        ({"format_rate": 0.4}, r"\\boxed{}"), ({"truncation_rate": 0.5}, "algorithm.max_response_tokens"),
        ({"mean_entropy": 3.5}, "data.template"), ({"mean_entropy": 0.01}, "algorithm.temperature"),
        ({"pass_rate": 0.0}, "Fine-tune"), ({"pass_rate": 1.0}, "harder"),
    ],
)  # fmt: skip
def test_each_bad_figure_has_one_sentence_on_what_to_do(change, advice):
    assert GOOD.advice() == []
    (sentence,) = dataclasses.replace(GOOD, **change).advice()
    assert re.search(advice, sentence)


def test_command_prints_prompt_answers_figures_and_advice(chat_model, tmp_path):
    words = ["probe", str(chat_model), "--data", "word_problems", "--set", "algorithm.max_response_tokens=6"]
    words += ["--set", "algorithm.max_prompt_tokens=400", "--num-questions", "1", "--runs-root", str(tmp_path)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert "<|im_start|>assistant" in result.output
    assert "pass rate 0.00, format rate 0.00, truncation rate 1.00" in result.output
    assert "- No response is correct" in result.output
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(("num_rows", "asked"), [(1, "1 question x 1"), (3, "2 questions x 1")])
def test_a_file_of_any_size_is_enough_without_settings_of_a_run(chat_model, tmp_path, num_rows, asked):
    data = tmp_path / "rows.jsonl"
    data.write_text(
        "".join(f'{{"question": "{number} + 1?", "answer": "{number + 1}"}}\n' for number in range(num_rows))
    )
    words = ["probe", str(chat_model), "--data", str(data), "--set", "algorithm.max_response_tokens=6"]
    words += ["--set", "algorithm.max_prompt_tokens=400"]  # the model's context is short
    words += ["--num-questions", "2", "--num-samples", "1", "--runs-root", str(tmp_path / "runs")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert f"({asked} responses" in result.output


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--data", "rows/gone.jsonl"], r"data.source: no file or folder is at .*/rows/gone.jsonl; correct the path"),
        (["--data", "word_problems"], r"model.source: expected a folder, GGUF file, hub name or pip:PACKAGE"),
        (["gone", "--data", "word_problems"], r"model.source: gone is no folder here .* hub name or pip:PACKAGE\.$"),
        (["gone", "--data", "gone-too"], r"gone-too: is no file here, and the data set or its split 'train' cannot"),
    ],
)
def test_a_model_or_data_that_is_missing_is_named_with_what_to_give(tmp_path, words, named):
    assert re.search(named, exgrpo(tmp_path, "probe", *words, code=2).strip())
