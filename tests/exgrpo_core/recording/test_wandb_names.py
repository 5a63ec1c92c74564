"""A script that logs to W&B records here when it imports this recorder under that name."""

import argparse
import json
from types import SimpleNamespace

import pandas as pd
import pytest

import exgrpo.recording as wandb
from exgrpo_core import recording
from exgrpo_core.recording.lines import parse_trajectory
from exgrpo_core.recording.rows import Message
from tests.exgrpo_core.recording.test_run import lines_of, read


@pytest.fixture
def run(tmp_path):
    yield wandb.init(project="words", config={"lr": 1e-6, "seed": 3}, dir=tmp_path)
    wandb.finish()


def said(line):
    return [message.text for message in parse_trajectory(line)[0]]


def test_settings_are_read_by_name_and_those_set_later_are_recorded(run):
    assert (wandb.config.lr, wandb.config["seed"], dict(wandb.config)) == (1e-6, 3, {"lr": 1e-6, "seed": 3})
    wandb.config.update({"seed": 4}, allow_val_change=True)
    wandb.config.warmup = 10
    run.config["path"] = run.path
    assert dict(wandb.config) == {"lr": 1e-6, "seed": 4, "warmup": 10, "path": run.path}
    changed = [line["config"] for line in read(run, "config")]
    assert changed == [{"seed": 4}, {"warmup": 10}, {"path": str(run.path)}]
    with pytest.raises(AttributeError, match="config: has no momentum"):
        _ = wandb.config.momentum


def test_the_run_has_its_name_its_id_and_a_summary_of_the_newest_values(run):
    assert (wandb.run.name, wandb.run.id) == ("words", run.path.name)
    wandb.run.name = "other"
    assert wandb.run.name == "words"
    wandb.log({"loss": 0.5, "eval": {"acc": 0.1}}, step=4)
    wandb.run.summary["best"] = 0.9
    wandb.run.summary.update({"eval/acc": 0.2})
    wandb.log({"loss": 0.25})
    assert dict(run.summary) == {"loss": 0.25, "eval/acc": 0.2, "best": 0.9}
    assert [(line["step"], line["metrics"]) for line in read(run, "metrics")] == [
        (4, {"loss": 0.5, "eval/acc": 0.1}), (4, {"best": 0.9}), (4, {"eval/acc": 0.2}), (5, {"loss": 0.25}),
    ]  # fmt: skip


@pytest.mark.parametrize("given", [argparse.Namespace(lr=0.5), {"lr": 0.5}, [("lr", 0.5)], SimpleNamespace(lr=0.5)])
def test_settings_are_a_mapping_or_parsed_arguments(tmp_path, given):
    run = wandb.init(config=given, dir=tmp_path)
    wandb.config.update(given)
    assert wandb.config.lr == 0.5
    assert wandb.config.setdefault("seed", 3) == 3
    wandb.finish()
    assert json.loads((run.path / "spec.json").read_text())["config"] == {"lr": 0.5}
    assert [line["config"] for line in read(run, "config")] == [{"lr": 0.5}, {"seed": 3}]


def test_a_step_goes_on_until_a_call_commits_it(run):
    wandb.log({"a": 1.0}, commit=False)
    wandb.log({"b": 2.0})
    wandb.log({"a": 3.0})
    assert [(line["step"], line["metrics"]) for line in read(run, "metrics")] == [
        (1, {"a": 1.0}), (1, {"b": 2.0}), (2, {"a": 3.0}),
    ]  # fmt: skip


def test_each_row_of_a_table_is_a_trajectory_once(run):
    table = wandb.Table(columns=["Question", "Completion", "Reward", "format"])
    table.add_data("1 + 1?", "2", 1.0, 0.5)
    wandb.log({"loss": 0.5, "rollouts": table})
    table.add_data("1 + 2?", "4", 0.0, 0.25)
    wandb.log({"rollouts": table})
    wandb.log({"rollouts": table})
    first, second = read(run)
    assert (first["step"], said(first), first["reward"], first["extra"]) == (1, ["1 + 1?", "2"], 1.0, {"format": 0.5})
    assert (second["step"], said(second), second["reward"]) == (2, ["1 + 2?", "4"], 0.0)
    assert [line["metrics"] for line in read(run, "metrics")] == [{"loss": 0.5}]
    assert run.num_lost == 0


@pytest.mark.parametrize(
    "table",
    [
        wandb.Table(data=[["q", "r", "a"]]),
        wandb.Table(columns=["prompt", "response", "answer"], data=[("q", "r", "a")]),
        wandb.Table(dataframe=pd.DataFrame({"prompt": ["q"], "output": ["r"], "answer": ["a"]})),
    ],
)
def test_tables_are_made_of_rows_or_of_a_frame(run, table):
    wandb.log({"samples": table})
    [line] = read(run)
    assert parse_trajectory(line)[0] == (Message("user", "q"), Message("assistant", "r", is_generated=True))
    assert line["answer"] == "a"


def test_a_table_without_responses_is_counted_as_lost(run):
    wandb.log({"losses": wandb.Table(columns=["a", "b"], data=[[1, 2]])})
    assert read(run) == []
    assert "a response; the fields are a, b" in run.why_lost


def test_arguments_without_effect_are_named_and_an_exit_code_is_a_failure(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(recording, "_named", set())
    run = wandb.init("words", dir=tmp_path, tags=["a"], entity="us")
    assert wandb.run is run
    wandb.finish(exit_code=2, quiet=True)
    said = [record.getMessage().partition(": these")[0] for record in caplog.records]
    assert said == ["init: tags, entity", "finish: quiet"]
    assert wandb.run is None
    assert '"status": "failed"' in (run.path / "attempts/0001/outcome.json").read_text()
    with pytest.raises(AttributeError, match="config: there is no run; call init first"):
        _ = wandb.config
    assert len(lines_of(run)) == 0
