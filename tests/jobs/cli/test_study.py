import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from exgrpo.jobs.actions.studies.definition import RunKey, Scale, load_study
from exgrpo.jobs.cli.main import app
from exgrpo.jobs.cli.options import EXIT_FAILURE
from exgrpo.jobs.runs.attempts import read_heartbeat
from exgrpo.jobs.runs.launchers import local
from exgrpo_core.recording.run_status import RunStatus
from tests.jobs.actions.studies.recorded import record_run, record_seeds
from tests.jobs.cli.invoked import WIDE, exgrpo, printed_json
from tests.jobs.execution.supervisor.toy_bench import TOY_WORKER, wait_until


def test_plan_says_how_many_seeds_a_difference_needs_by_a_given_spread_or_that_of_finished_runs(tmp_path: Path):
    words = ("study", "plan", "repo", "--difference")
    assert printed_json(tmp_path, *words, 2, "--spread", 2)["num_seeds"] == 10
    assert "needs 10 seeds a cell" in exgrpo(tmp_path, *words, 2, "--spread", 2)
    for more in ((), ("--spread", -2), ("--spread", "nan")):
        assert exgrpo(tmp_path, *words, 2, *more, code=2).startswith("--spread, --difference: ")
    record_seeds(tmp_path, "repo", "repo", 5, 5, 5)
    record_seeds(tmp_path, "repo", "exgrpo-re", 5, 6, 7)
    planned = printed_json(tmp_path, *words, 10)
    assert (round(planned["spread"], 6), planned["num_comparisons"], planned["num_seeds"]) == (10.0, 1, 10)


def test_status_tells_done_from_missing_and_lists_runs_of_more_seeds_than_the_study_has(tmp_path: Path):
    [run_id] = record_seeds(tmp_path, "repo", "repo", 5)
    words = ("study", "status", "repo", "--seeds", 2, "--cells", "repo")
    lines = printed_json(tmp_path, *words)["runs"]
    assert [(line["state"], line["run_id"]) for line in lines] == [("finished", run_id), ("missing", None)]
    assert exgrpo(tmp_path, *words).split(maxsplit=1) == ["repo", "finished: seed 0; missing: seed 1\n"]
    record_run(tmp_path, load_study("repo"), RunKey("repo", Scale.CHAINS, "repo", 11), 5)
    runs = printed_json(tmp_path, "study", "status", "repo")["runs"]
    assert [(run["cell"], run["seed"]) for run in runs if run["state"] == "finished"] == [("repo", 0), ("repo", 11)]
    assert {run["seed"] for run in printed_json(tmp_path, *words)["runs"]} == {0, 1}


def test_results_are_beside_the_papers_numbers_and_in_a_report(tmp_path: Path):
    words = ("study", "results", "ablations")
    assert exgrpo(tmp_path, *words).strip() == "No run has finished yet."
    record_seeds(tmp_path, "ablations", "on-policy", 5)
    record_seeds(tmp_path, "ablations", "exgrpo", 8)
    found = printed_json(tmp_path, *words)
    assert found["figures"]["exgrpo"]["Held-out Avg@8 (%)"] == {"mean": 80.0, "half": None, "values": [80.0]}
    (row,) = [row for row in found["beside_paper"] if row["cell"] == "exgrpo"]
    assert (row["printed"], row["difference"]["mean"]) == ("48.3", 30.0)
    assert "ExGRPO / Avg.: paper 48.3, own exgrpo 80.0, difference +30.0 (1 seeds)" in exgrpo(tmp_path, *words)
    page = tmp_path / "page.html"
    assert exgrpo(tmp_path, "study", "report", "ablations", "--out", page).strip() == str(page)
    assert "Finished runs: 2, " in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (("report", "ablation"), "NAME"), (("status", "repo", "--scale", "moon"), "--scale"),
        (("status", "repo", "--cells", "x"), "--cells"), (("run", "main-table", "--cells", "luffy-exgrpo"), "--cells"),
        (("run", "repo", "--set", "num_stepz=3"), "--set num_stepz"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_for_is_refused_in_one_sentence(tmp_path, words, field):
    assert exgrpo(tmp_path, "study", *words, code=2).splitlines()[-1].startswith(f"{field}: ")


def test_detached_run_fails_when_a_cell_is_refused(tmp_path: Path):
    cell = next(item.name for item in load_study("main-table").cells_at(Scale.CHAINS) if item.starts_from is not None)
    exgrpo(tmp_path, "study", "run", "main-table", "--cells", cell, "--seeds", 1, "--detach", code=EXIT_FAILURE)
    assert list(tmp_path.glob("*/run.json")) == []


@pytest.mark.slow
def test_run_makes_what_is_missing_once_and_resumes_what_failed(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(local, "WORKER_MODULE", TOY_WORKER)
    study, key = load_study("repo"), RunKey("repo", Scale.CHAINS, "repo", 0)
    failed = record_run(tmp_path, study, key, 5, RunStatus.FAILED)
    words = ["study", "run", "repo", "--seeds", "1", "--runs-root", str(tmp_path)]
    first, again = (CliRunner(env=WIDE).invoke(app, words) for _ in range(2))
    assert first.exit_code == 0, first.stderr
    assert "Existing runs: 0 of 2." in first.stderr
    assert "Runs done: 2, failed: 0" in first.stdout
    assert "Existing runs: 2 of 2." in again.stderr
    runs = [name for name in os.listdir(tmp_path) if (tmp_path / name / "spec.json").is_file()]
    assert len(runs) == 2
    assert failed in runs
    lines = printed_json(tmp_path, "study", "status", "repo", "--seeds", 1)["runs"]
    assert {line["state"] for line in lines} == {"finished"}


@pytest.mark.slow
def test_interrupted_study_stops_its_run_and_goes_on_later(tmp_path: Path):
    words = [sys.executable, "-m", "tests.jobs.cli.toy_cli", "study", "run", "repo", "--seeds", "1", "--cells", "repo"]
    words += ["--runs-root", str(tmp_path), "--set", "num_steps=2000"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: any(read_step(path) > 3 for path in tmp_path.glob("*/attempts/0001")), "the first steps")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 3, errors
    assert "Runs left: 0 and this one; the same command continues." in errors
    states = printed_json(tmp_path, "study", "status", "repo", "--seeds", 1)["runs"]
    assert [line["state"] for line in states] == ["missing", "stopped"]


def read_step(attempt_path: Path) -> int:
    heartbeat = read_heartbeat(attempt_path)
    return heartbeat.step if heartbeat else 0
