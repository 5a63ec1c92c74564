import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from jobs.cli.main import app
from jobs.cli.options import EXIT_FAILURE
from jobs.runs.attempts import read_heartbeat
from jobs.runs.control import RunStatus
from jobs.studies.definition import Scale, load_study, study_names
from jobs.studies.matrix import RunKey
from tests.jobs.studies.recorded import record_run
from tests.jobs.supervisor.toy_bench import wait_until

CLI = CliRunner(env={"EXGRPO_RUNS_ROOT": "", "NO_COLOR": "1", "COLUMNS": "200"})


def call(*words: object) -> str:
    result = CLI.invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_query_names_every_study():
    studies = json.loads(call("query", "studies", "--json"))
    assert [study["name"] for study in studies] == study_names()
    assert len(studies) == 15


def test_numbers_are_rows_of_table_row_column_and_value_with_their_notes():
    rows = json.loads(call("query", "study-numbers", "main-table", "--json"))
    found = [row for row in rows if (row["row"], row["column"]) == ("GPG-Zero", "OOD Avg.")]
    assert [(row["table"], row["value"]) for row in found] == [("tab:main", 41.6)]
    assert "mean of its cells is 53.73" in found[0]["note"]
    assert "the paper prints 11.6, but tab:code_analysis has 11.50" in call("query", "study-numbers", "code-analysis")


def test_plan_says_how_many_seeds_a_difference_needs_by_a_given_spread_or_that_of_finished_runs(tmp_path: Path):
    words = ("study", "plan", "repo", "--runs-root", tmp_path)
    assert json.loads(call(*words, "--difference", 2, "--spread", 2, "--json"))["num_seeds"] == 10
    assert "needs 10 seeds a cell to be found with a chance of 80% among 1 comparisons" in call(
        *words, "--difference", 2, "--spread", 2
    )
    for more in ((), ("--spread", -2), ("--spread", "nan")):
        refused = CLI.invoke(app, [str(word) for word in (*words, "--difference", 2, *more)])
        assert refused.exit_code
        assert "--spread" in refused.output
    study = load_study("repo")
    for cell, counts in (("repo", (5, 5, 5)), ("exgrpo-re", (5, 6, 7))):
        for seed, count in enumerate(counts):
            record_run(tmp_path, study, RunKey("repo", Scale.CHAINS, cell, seed), count)
    planned = json.loads(call(*words, "--difference", 10, "--json"))
    assert (round(planned["spread"], 6), planned["num_comparisons"], planned["num_seeds"]) == (10.0, 1, 10)


def test_status_tells_done_from_missing(tmp_path: Path):
    run_id = record_run(tmp_path, load_study("repo"), RunKey("repo", Scale.CHAINS, "repo", 0), 5)
    words = ("study", "status", "repo", "--seeds", 2, "--cells", "repo", "--runs-root", tmp_path)
    lines = json.loads(call(*words, "--json"))["runs"]
    assert [(line["state"], line["run_id"]) for line in lines] == [("finished", run_id), ("missing", None)]
    assert call(*words).split(maxsplit=1) == ["repo", "finished: seed 0; missing: seed 1\n"]


def test_results_are_beside_the_papers_numbers(tmp_path: Path):
    study = load_study("ablations")
    record_run(tmp_path, study, RunKey("ablations", Scale.CHAINS, "on-policy", 0), 5)
    record_run(tmp_path, study, RunKey("ablations", Scale.CHAINS, "exgrpo", 0), 8)
    words = ("study", "results", "ablations", "--runs-root", tmp_path)
    found = json.loads(call(*words, "--json"))
    assert found["figures"]["exgrpo"]["Held-out Avg@8 (%)"] == {"mean": 80.0, "half": None, "values": [80.0]}
    (row,) = [row for row in found["beside_paper"] if row["cell"] == "exgrpo"]
    assert (row["printed"], row["difference"]["mean"]) == ("48.3", 30.0)
    assert "ExGRPO / Avg.: paper 48.3, own exgrpo 80.0, difference +30.0 (1 seeds)" in call(*words)


def test_results_of_a_study_that_is_not_of_the_paper_are_printed_too(tmp_path: Path):
    study = load_study("real-model")
    for seed, counts in enumerate(((5, 8), (6, 8), (4, 6))):
        for cell, count in zip(("on-policy", "exgrpo"), counts, strict=True):
            record_run(tmp_path, study, RunKey("real-model", Scale.REAL, cell, seed), count)
    printed = call("study", "results", "real-model", "--runs-root", tmp_path)
    assert "on-policy: Held-out Avg@8 (%) 50.0 ± 24.8 (3 seeds)\n" in printed
    assert "exgrpo: Held-out Avg@8 (%) 73.3 ± 28.7, difference +23.3 ± 14.3 (3 seeds)\n" in printed
    assert "Higher than the baseline: exgrpo." in printed


def test_results_before_any_run_say_so(tmp_path: Path):
    assert call("study", "results", "repo", "--runs-root", tmp_path).strip() == "No run has finished yet."


def test_report_writes_the_page(tmp_path: Path):
    record_run(tmp_path, load_study("repo"), RunKey("repo", Scale.CHAINS, "repo", 0), 5)
    page = tmp_path / "page.html"
    assert call("study", "report", "repo", "--runs-root", tmp_path, "--out", page).strip() == str(page)
    assert "Finished runs: 1, " in page.read_text(encoding="utf-8")


def test_without_a_scale_a_study_is_read_at_the_first_that_it_has(tmp_path: Path):
    answer = json.loads(call("study", "status", "real-model", "--json", "--runs-root", tmp_path))
    assert answer["scale"] == "real"
    assert [run["cell"] for run in answer["runs"][:3]] == ["warm", "on-policy", "exgrpo"]
    assert {run["seed"] for run in answer["runs"]} == {0, 1, 2}


def test_status_lists_runs_of_more_seeds_than_the_study_has(tmp_path: Path):
    record_run(tmp_path, load_study("repo"), RunKey("repo", Scale.CHAINS, "repo", 11), 5)
    runs = json.loads(call("study", "status", "repo", "--json", "--runs-root", tmp_path))["runs"]
    assert [(run["cell"], run["seed"]) for run in runs if run["state"] == "finished"] == [("repo", 11)]
    words = ("study", "status", "repo", "--seeds", 2, "--json", "--runs-root", tmp_path)
    assert {run["seed"] for run in json.loads(call(*words))["runs"]} == {0, 1}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("report", "ablation"), "NAME: expected one of ablations,"),
        (("status", "repo", "--scale", "moon"), "--scale: expected one of chains, real, paper, got 'moon'."),
        (("status", "repo", "--cells", "x"), "--cells: expected some of exgrpo-re, repo, got 'x'."),
        (("run", "main-table", "--cells", "luffy-exgrpo"), "--cells: expected some of on-policy, exgrpo"),
        (("run", "repo", "--set", "num_stepz=3"), "--set num_stepz: there is no such field; did you mean num_steps"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_in_one_sentence(tmp_path, words, sentence):
    result = CLI.invoke(app, ["study", *words, "--runs-root", str(tmp_path)])
    assert result.exit_code == 2
    assert sentence in result.stderr


def test_detached_run_fails_when_a_cell_is_refused(tmp_path: Path):
    cell = next(item.name for item in load_study("main-table").cells_at(Scale.CHAINS) if item.starts_from is not None)
    words = ["study", "run", "main-table", "--cells", cell, "--seeds", "1", "--detach", "--runs-root", str(tmp_path)]
    result = CLI.invoke(app, words)
    assert result.exit_code == EXIT_FAILURE
    assert "of which no run of this seed is finished or under way; start or resume that first." in result.stderr
    assert list(tmp_path.glob("*/run.json")) == []


@pytest.mark.slow
def test_run_makes_what_is_missing_once_and_resumes_what_failed(tmp_path: Path):
    study, key = load_study("repo"), RunKey("repo", Scale.CHAINS, "repo", 0)
    failed = record_run(tmp_path, study, key, 5, RunStatus.FAILED)
    words = ["-m", "tests.jobs.cli.toy_cli", "study", "run", "repo", "--seeds", "1", "--runs-root", str(tmp_path)]
    first = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=120, check=False)
    assert first.returncode == 0, first.stderr
    assert "Existing runs: 0 of 2." in first.stderr
    assert "Runs done: 2, failed: 0" in first.stdout
    again = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=120, check=False)
    assert "Existing runs: 2 of 2." in again.stderr
    runs = [name for name in os.listdir(tmp_path) if (tmp_path / name / "spec.json").is_file()]
    assert len(runs) == 2
    assert failed in runs
    lines = json.loads(call("study", "status", "repo", "--seeds", 1, "--runs-root", tmp_path, "--json"))["runs"]
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
    assert "Runs left: 0 and this one; `exgrpo study run repo` continues." in errors
    states = json.loads(call("study", "status", "repo", "--seeds", 1, "--runs-root", tmp_path, "--json"))["runs"]
    assert [line["state"] for line in states] == ["missing", "stopped"]


def read_step(attempt_path: Path) -> int:
    heartbeat = read_heartbeat(attempt_path)
    return heartbeat.step if heartbeat else 0
