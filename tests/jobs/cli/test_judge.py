import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from db.connections.opening import open_database
from db.queries.judging import list_judges
from jobs.cli.main import app
from jobs.judging.prompt import PROMPT_FILE
from tests.jobs.judging.chain_runs import record_chains
from tests.jobs.judging.judge_server import completion, judged_texts, serving

KINDS = ["valid", "lucky", "wrong", "code"]


def exgrpo(runs_root, *words, code=0):
    """Run a command as a user would, in a process of its own, and return what it printed as JSON."""
    command = [sys.executable, "-m", "jobs.cli", *words, "--runs-root", str(runs_root), "--json"]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert finished.returncode == code, finished.stdout + finished.stderr
    return json.loads(finished.stdout) if finished.stdout else finished.stderr


@pytest.mark.slow
def test_a_run_is_judged_shown_analysed_and_rebuilt_from_the_command_line(tmp_path):
    record_chains(tmp_path, [KINDS, KINDS])
    with serving() as server:
        summary = exgrpo(tmp_path, "judge", "trained", "--server", server.address, "--model", "a judge")
        assert len(server.bodies) == 6
    assert (summary["num_valid"], summary["num_invalid"], summary["num_unjudged"]) == (2, 4, 0)
    assert summary["issues"] == {"calculation": 2, "omission": 2}
    assert (summary["judge"], summary["prompt"], summary["source"]) == ("a judge", PROMPT_FILE.stem, "trained")
    printed = exgrpo(tmp_path, "query", "analysis", "trained", "--judge", summary["run_id"])
    assert printed["judge"] == "a judge"
    assert printed["cases"][0]["high"]["is_valid"] is False
    subprocess.run(
        [sys.executable, "-m", "jobs.cli", "db", "rebuild", "--runs-root", str(tmp_path)], check=True, timeout=120
    )
    database = open_database(None, tmp_path)
    [judge] = list_judges(database, "trained")
    assert (judge.judge_run_id, judge.status, judge.num_responses) == (summary["run_id"], "finished", 6)
    database.close()


@pytest.mark.slow
def test_a_judge_is_calibrated_on_labelled_solutions_from_the_command_line(tmp_path):
    labelled = tmp_path / "labelled.jsonl"
    rows = [{"id": f"{n}", "problem": "p", "steps": ["good" if n % 2 else "bad"], "label": -(n % 2)} for n in range(8)]
    labelled.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")

    def judge_by_word(body):
        return completion(f"\\boxed{{{'yes' if judged_texts(body)[1] == 'good' else 'no'}}}")

    with serving(judge_by_word) as server:
        summary = exgrpo(tmp_path, "judge", "--labelled", str(labelled), "--server", server.address, "--votes", "2")
        assert len(server.bodies) == 16
    calibration = summary["calibration"]
    assert (calibration["sensitivity"]["value"], calibration["specificity"]["value"]) == (1.0, 1.0)
    assert (calibration["kappa"], calibration["flips"]["num_items"]) == (1.0, 8)


@pytest.mark.slow
def test_a_judge_that_may_not_be_asked_fails_with_one_sentence(tmp_path):
    record_chains(tmp_path, [KINDS])
    command = [sys.executable, "-m", "jobs.cli", "judge", "trained", "--server", "http://169.254.169.254/v1",
               "--runs-root", str(tmp_path)]  # fmt: skip
    finished = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert finished.returncode == 1
    assert "internal or link-local address (169.254.169.254)" in finished.stderr
    assert "Traceback" not in finished.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["judge"], "expected exactly one of run_id and file"),
        (["judge", "--server", "http://a:b@c/v1"], "set the key in the environment"),
        (["judge", "trained", "--set", "server.tempo=3"], "no such field"),
    ],
)
def test_a_wrong_order_is_refused_in_one_sentence(tmp_path, words, sentence):
    record_chains(tmp_path, [KINDS])
    result = CliRunner().invoke(app, [*words, "--runs-root", str(tmp_path)])
    assert result.exit_code == 2
    assert sentence in result.stderr
