import json
import re

import pytest
from typer.testing import CliRunner

from exgrpo.jobs.cli.main import app
from exgrpo.jobs.machine.engine_environments import VERL_PYTHON_VARIABLE

pytestmark = pytest.mark.slow


@pytest.fixture
def dry_run(tmp_path, monkeypatch):
    monkeypatch.setenv(VERL_PYTHON_VARIABLE, str(tmp_path / "gone"))

    def call(*words: str):
        return CliRunner().invoke(app, ["train", "--dry-run", "--runs-root", str(tmp_path / "runs"), *words])

    yield call
    assert not (tmp_path / "runs").exists()


def test_verl_without_a_preset_takes_the_small_one_and_overrides_are_added_to_those_of_the_specification(dry_run):
    words = ["--set", "verl.overrides=[reward.num_workers=3]", "--override", "trainer.logger=[console,wandb]"]
    plan = json.loads(dry_run("--engine", "verl", *words, "--json").stdout)
    assert (plan["spec"]["model"]["source"], plan["num_gpus"]) == ("Qwen/Qwen2.5-0.5B", 1)
    assert plan["memory"]["parameters"] == pytest.approx(0.494e9, rel=0.01)
    assert plan["spec"]["verl"]["overrides"] == ["reward.num_workers=3", "trainer.logger=[console,wandb]"]
    assert plan["settings"][-2:] == ["reward.num_workers=3", "trainer.logger=[console,wandb]"]


@pytest.mark.parametrize(
    ("words", "beginning"),
    [
        (["--override", "a=1"], "--override: verl.overrides: "),
        (
            ["--engine", "verl", "--preset", "paper-exgrpo", "--set", "model.source=Qwen/Qwen2.5-Math-7B"],
            "model.source",
        ),
        (["--preset", "paper-exgrpo", "--gpu", "a100"], "--gpu: "),
        (["--preset", "chains-exgrpo", "--gpu", "h100"], "--gpu: "),
    ],
)
def test_what_cannot_run_is_refused_in_one_sentence(dry_run, words, beginning):
    report = dry_run(*words)
    assert (report.exit_code, len(report.stderr.splitlines())) == (2, 1)
    assert report.stderr.startswith(beginning)


def test_a_named_gpu_gives_memory_and_time_and_is_kept_in_the_script(dry_run):
    hours = []
    for gpu, gib in (("h100", "79.6"), ("a100 80", "80.0")):
        report = dry_run("--preset", "paper-exgrpo", "--gpu", gpu, "--script", "slurm")
        assert f"gpu_gib: {gib}\n" in report.stdout
        hours.append(float(re.search(r"([\d.]+) h in all", report.stderr)[1]))
    assert hours[1] == pytest.approx(hours[0] * 989 / 312, rel=0.01)
    short = ["--set", "algorithm.max_response_tokens=64"]
    tiny = dry_run("--engine", "verl", "--gpu", "h100", *short).stderr
    assert re.search(r"up to [\d.]+ of 79.6 GiB", tiny)
    assert "per step" not in tiny  # it is not the tokens that take a step's time
