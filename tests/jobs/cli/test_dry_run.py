import json

import pytest
from typer.testing import CliRunner

from jobs.cli.main import app
from jobs.machine.engine_environments import VERL_PYTHON_VARIABLE


@pytest.fixture
def dry_run(tmp_path, monkeypatch):
    """Return a function that runs `exgrpo train --dry-run` without an environment for verl."""
    monkeypatch.setenv(VERL_PYTHON_VARIABLE, str(tmp_path / "gone"))

    def call(*words: str):
        return CliRunner().invoke(app, ["train", "--dry-run", "--runs-root", str(tmp_path / "runs"), *words])

    yield call
    assert not (tmp_path / "runs").exists()


def test_verl_without_a_preset_takes_the_small_one(dry_run):
    report = dry_run("--engine", "verl", "--json")
    assert report.exit_code == 0
    plan = json.loads(report.stdout)
    assert plan["spec"]["model"]["source"] == "Qwen/Qwen2.5-0.5B"
    assert (plan["spec"]["engine"], plan["num_gpus"]) == ("verl", 1)
    assert plan["memory"]["parameters"] == pytest.approx(0.494e9, rel=0.01)


def test_overrides_are_added_to_those_of_the_specification(dry_run):
    words = ["--set", "verl.overrides=[reward.num_workers=3]", "--override", "trainer.logger=[console,wandb]"]
    plan = json.loads(dry_run("--engine", "verl", *words, "--json").stdout)
    assert plan["spec"]["verl"]["overrides"] == ["reward.num_workers=3", "trainer.logger=[console,wandb]"]
    assert plan["settings"][-2:] == ["reward.num_workers=3", "trainer.logger=[console,wandb]"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--engine", "verl", "--override", "trainer"], "verl.overrides.0: expected KEY=VALUE"),
        (["--override", "a=1"], "verl.overrides: expected none"),
        (["--engine", "ray"], "engine: expected 'embedded' or 'verl', got 'ray'"),
        (["--set", "num_steps=abc"], "num_steps: expected a whole number, got 'abc'"),
        (["--set", "num_steps=0"], "num_steps: expected at least 1, got 0"),
        (["--set", "optim.learning_rate=fast"], "optim.learning_rate: expected a number, got 'fast'"),
        (["--set", "data.requires_think_end=maybe"], "data.requires_think_end: expected true or false, got 'maybe'"),
        (["--set", "data.source=''"], "data.source: expected 1 or more characters, got ''"),
        (["--engine", "verl", "--preset", "paper-exgrpo", "--set", "model.source=Qwen/Qwen2.5-Math-7B"], "of 4,096"),
    ],
)
def test_what_cannot_run_is_refused_in_one_sentence(dry_run, words, sentence):
    report = dry_run(*words)
    assert report.exit_code == 2
    assert sentence in report.stderr
    assert len(report.stderr.splitlines()) == 1


def test_text_for_people_has_settings_command_and_estimates(dry_run):
    text = dry_run("--engine", "verl", "--preset", "paper-llama-base").stdout
    assert "actor_rollout_ref.model.path=meta-llama/Llama-3.1-8B\n" in text
    assert "8.03 billion parameters" in text
    assert "checkpoints on disk" in text


def test_embedded_runs_can_be_looked_at_too(dry_run):
    text = dry_run("--preset", "chains-exgrpo").stdout
    assert "jobs.worker" in text
    assert "trajectories on disk" in text


def test_script_to_take_along_is_printed_alone(dry_run):
    report = dry_run("--preset", "paper-exgrpo", "--set", "verl.num_nodes=2", "--script", "slurm")
    assert report.exit_code == 0, report.output
    assert report.stdout.startswith("#!/bin/bash\n#SBATCH --job-name=paper-ExGRPO\n#SBATCH --nodes=2\n")
