"""What a look at a model finds, and what it advises."""

import dataclasses
import json
import re
import time

import pytest
from typer.testing import CliRunner

from jobs.actions.probe_process import ProbeProcess
from jobs.cli.main import app
from jobs.specs.train import parse_spec
from jobs.training.probe import probe
from jobs.training.probe_report import ProbedAnswer, ProbeReport
from tests.jobs.training.chat_model import make_chat_model

GOOD = ProbeReport("Q", 4, 4, 0.4, 0.9, 0.1, 0.5, 40.0, 3.0, (ProbedAnswer("\\boxed{3}", "3", "correct"),))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_chat_model(tmp_path_factory.mktemp("model"))


def spec_of(model):
    return parse_spec(
        {
            "model": {"source": str(model), "device": "cpu"},
            "data": {"source": "word_problems"},
            "algorithm": {"max_prompt_tokens": 400, "max_response_tokens": 8},
        },
        "test",
    )


def test_random_model_never_ends_or_answers_and_writes_noise(model):
    report = probe(spec_of(model), num_questions=3, num_samples=2)
    assert (report.num_questions, report.num_samples, len(report.answers)) == (3, 2, 3)
    assert (report.pass_rate, report.format_rate, report.truncation_rate) == (0.0, 0.0, 1.0)
    assert report.mean_tokens == 8.0
    assert 5.0 < report.mean_entropy < 6.5  # log 600 = 6.4
    assert report.prompt.endswith("<|im_start|>assistant\n")
    assert [answer.verdict for answer in report.answers] == ["unparsed"] * 3
    assert len(report.advice()) == 4
    assert probe(spec_of(model), num_questions=3, num_samples=2).mean_entropy == report.mean_entropy


def test_good_figures_need_no_advice():
    assert GOOD.advice() == []


@pytest.mark.parametrize(
    ("change", "advice"),
    [
        ({"format_rate": 0.4}, r"answer in 40% of the responses: .*\\boxed{}"),
        ({"truncation_rate": 0.5}, "50% of the responses do not end: raise algorithm.max_response_tokens"),
        ({"mean_entropy": 3.5}, "3.5 nats is that of noise.* data.template"),
        ({"mean_entropy": 0.01}, "0.01 nats .* raise algorithm.temperature"),
        ({"pass_rate": 0.0}, "No answer is right.* fine-tune"),
        ({"pass_rate": 1.0}, "Every answer is right.* harder"),
    ],
)
def test_each_bad_figure_has_one_sentence_on_what_to_do(change, advice):
    (sentence,) = dataclasses.replace(GOOD, **change).advice()
    assert re.search(advice, sentence)


def test_report_reads_back_from_json():
    assert ProbeReport.from_json(json.loads(json.dumps(GOOD.to_json()))) == GOOD


def test_command_prints_prompt_answers_figures_and_advice(model, tmp_path):
    words = ["probe", str(model), "--data", "word_problems", "--set", "algorithm.max_response_tokens=6"]
    words += ["--set", "algorithm.max_prompt_tokens=400", "--num-questions", "1", "--runs-root", str(tmp_path)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert "<|im_start|>assistant" in result.output
    assert "pass rate 0.00, format rate 0.00, truncation rate 1.00" in result.output
    assert "- No answer is right" in result.output
    assert not any(tmp_path.iterdir())


def test_process_of_a_form_gives_the_same_report_or_one_sentence(model, tmp_path):
    spec = spec_of(model)
    gone = spec.model_copy(update={"model": spec.model.model_copy(update={"source": "/gone/model"})})
    processes = [ProbeProcess(each, tmp_path) for each in (spec, gone)]
    while any(process.result() is None for process in processes):
        time.sleep(0.02)
    report, reason = (process.result() for process in processes)
    assert report == dataclasses.replace(probe(spec), seconds=report.seconds)
    assert "model.source: expected an existing file or folder, got /gone/model" in reason


def test_stopped_process_ends(model, tmp_path):
    process = ProbeProcess(spec_of(model), tmp_path)
    process.stop()
    assert process.result() == "The probe ended with code -9."
