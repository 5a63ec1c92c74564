import json

import pytest
from typer.testing import CliRunner

from jobs.cli.main import app
from jobs.runs.journal import Journal, JournalKind
from tests.db.queries.test_judging import job_of_votes
from tests.jobs.cli.invoked import exgrpo, printed_json
from tests.jobs.judging.chain_runs import new_job, oracle_spec, record_chains, run_job

KINDS = ["valid", "lucky", "wrong", "code"]


@pytest.fixture
def runs_root(tmp_path):
    """A run of chains and the oracle's job on it."""
    record_chains(tmp_path, [KINDS, KINDS])
    run_job(new_job(tmp_path, oracle_spec()))
    return tmp_path


def test_judges_are_printed_with_cost_and_agreement(runs_root):
    [found] = printed_json(runs_root, "judges", "trained")
    assert (found["job"]["judge"], found["job"]["num_votes"], found["job"]["num_tokens"]) == ("chains oracle", 6, 0)
    assert found["calibration"] is None
    [agreed] = found["agreement"]
    assert (agreed["other"], agreed["num_both_valid"], agreed["num_both_invalid"]) == ("oracle", 2, 4)
    assert "agrees with oracle on 1.000 of 6" in exgrpo(runs_root, "judges", "trained")


def test_a_judges_calibration_is_printed_with_its_jobs(runs_root):
    labelled = [("a", None, "valid", True), ("b", None, "invalid", False), ("c", None, "valid", False)]
    job_of_votes(runs_root, labelled, source="labelled.jsonl", run_id="calibrated")
    job_of_votes(runs_root, [("1/0", 0, "valid", None)])
    found = {row["job"]["judge_run_id"]: row for row in printed_json(runs_root, "judges", "trained")}
    assert found["voted"]["calibration"]["specificity"]["value"] == 0.5
    assert found["judged"]["calibration"] is None
    assert "sensitivity 1.000, specificity 0.500" in exgrpo(runs_root, "judges", "trained")


def test_an_override_counts_in_verdicts_until_it_is_taken_back(runs_root):
    exgrpo(runs_root, "override", "trained", "0", "invalid")
    rows = printed_json(runs_root, "verdicts", "trained", "--which", "disputed")
    assert [(row["trajectory_id"], row["by_judge"], row["user"]) for row in rows] == [(0, True, False)]
    assert "judge valid" in exgrpo(runs_root, "verdicts", "trained", "--judge", "judged")
    exgrpo(runs_root, "override", "trained", "0", "none")
    assert printed_json(runs_root, "verdicts", "trained", "--which", "disputed") == []
    kinds = [entry.kind for entry in Journal(runs_root).entries()]
    assert kinds[-2:] == [JournalKind.VERDICT_SET, JournalKind.VERDICT_CLEARED]


def test_cases_are_found_kept_and_written_as_files(runs_root):
    [case] = printed_json(runs_root, "cases", "find", "trained", "--telling", "--keep", "my set")
    assert (case["low"]["is_valid"], case["high"]["is_valid"]) == (True, False)
    assert printed_json(runs_root, "cases", "sets") == [{"name": "my set", "num_cases": 1, "num_runs": 1}]
    exgrpo(runs_root, "cases", "export", "my set", str(runs_root / "cases.json"))
    assert json.loads((runs_root / "cases.json").read_text(encoding="utf-8"))["cases"] == [case]
    assert "# Snowball cases: my set" in exgrpo(runs_root, "cases", "export", "my set")


def test_code_of_a_run_is_counted_by_rule(runs_root):
    table = printed_json(runs_root, "analyse", "code", "trained", "--correct")
    assert (table["num_texts"], table["num_any"], table["num_python_blocks"]) == (6, 2, 2)
    assert "any       2  25.00%  of 8 texts" in exgrpo(runs_root, "analyse", "code", "trained")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["verdicts", "trained", "--which", "some"], "--which: expected one of all, judged"),
        (["override", "trained", "0", "perhaps"], "expected valid, invalid or none"),
        (["override", "trained", "77", "valid"], "has no trajectory 77"),
        (["cases", "export", "nothing"], "no case is kept in 'nothing'"),
        (["cases", "find", "trained", "--keep", "\x07"], "expected a name of 1 to 60 printable characters"),
    ],
)
def test_a_wrong_order_is_refused_in_one_sentence(runs_root, words, sentence):
    assert sentence in exgrpo(runs_root, *words, code=2)


def printed(runs_root, *words):
    result = CliRunner().invoke(app, [*words, "--runs-root", str(runs_root)])
    assert (result.exit_code, result.stdout) == (0, "")
    return result.stderr


def test_an_empty_answer_is_said_beside_the_result(tmp_path):
    record_chains(tmp_path, [["wrong", "wrong"]])
    empty = {
        ("judges",): "No judge jobs yet",
        ("judges", "trained"): "No judge has judged it yet",
        ("cases", "sets"): "No case is kept yet",
        ("cases", "find", "trained"): "No case in trained",
        ("verdicts", "trained"): "No answer-correct trajectory of trained matches (all)",
    }
    for words, sentence in empty.items():
        assert sentence in printed(tmp_path, *words)
        assert printed_json(tmp_path, *words) == []


@pytest.mark.parametrize("command", [("cases", "find"), ("verdicts",), ("analyse", "run")])
def test_verdicts_of_a_run_that_is_no_judge_are_refused(runs_root, command):
    sentence = exgrpo(runs_root, *command, "trained", "--judge", "trained", code=2)
    assert sentence == ("--judge: expected a judge's job, trained is of kind train; `exgrpo judges` lists them.\n")


def test_verdicts_without_a_judge_name_the_oracle_once(runs_root):
    lines = exgrpo(runs_root, "verdicts", "trained").splitlines()
    assert len(lines) == 6
    assert all("judge" not in line and line.count("valid") == 1 for line in lines)
