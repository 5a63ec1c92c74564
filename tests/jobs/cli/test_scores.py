import json

import pytest
from typer.testing import CliRunner

from db.connections.opening import open_database
from jobs.cli.main import app
from tests.db.recorded_scores import PARTS, event, record_scores
from tests.jobs.analysis.recorded_samples import append

CLI = CliRunner(env={"EXGRPO_RUNS_ROOT": "", "NO_COLOR": "1", "COLUMNS": "200"})


@pytest.fixture
def runs_root(tmp_path):
    """A runs root with two evaluations, of which the second is better and was asked with another template."""
    database = open_database(None, tmp_path)
    record_scores(database, tmp_path, event([0, 2, 4]), run_id="eval-first")
    better = event([4, 2, 3], comparability=PARTS | {"template": "none"}, source_run_id=None, source_step=None)
    record_scores(database, tmp_path, better, event([1], benchmark="amc"), run_id="eval-second")
    database.close()
    return tmp_path


def call(runs_root, *words):
    return CLI.invoke(app, ["scores", *words, "--runs-root", str(runs_root)])


def test_scores_are_listed_with_their_errors(runs_root):
    rows = json.loads(call(runs_root, "--json").stdout)
    found = {(row["run_id"], row["benchmark"]): (row["score"], row["standard_error"]) for row in rows}
    assert found["eval-first", "aime24"] == (0.5, pytest.approx(0.5 / 3**0.5))
    assert found["eval-second", "amc"] == (0.25, None)
    assert "75.0 ± 28.3  3 questions" in call(runs_root).stdout


def test_two_evaluations_are_compared_with_a_warning_where_they_are_not_alike(runs_root):
    (row,) = json.loads(call(runs_root, "eval-first", "eval-second", "--json").stdout)
    assert (row["benchmark"], row["difference"], row["num_won"], row["num_lost"]) == ("aime24", 0.25, 1, 1)
    printed = call(runs_root, "eval-first", "eval-second").stdout
    assert "50.0  75.0  +25.0 [" in printed
    assert "won 1, lost 1 of 3 questions  NOT COMPARABLE: template" in printed


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("eval-first", "eval-second", "eval-first"), "FIRST SECOND: expected at most two evaluations, got 3."),
        (("--scheme", "best"), "--scheme: expected one of paper, training, got 'best'."),
        (("eval-first", "nobody"), "no run in"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_one_sentence(runs_root, words, sentence):
    result = call(runs_root, *words)
    assert result.exit_code == 2
    assert sentence in result.stderr


def test_evaluations_joined_by_a_comma_are_training_seeds(runs_root):
    row, _ = json.loads(call(runs_root, "eval-first,eval-second", "eval-second", "--json").stdout)
    assert (row["num_seeds"], row["first"], row["second"]) == ([2, 1], 0.625, 0.75)


def test_comparison_ends_with_what_its_intervals_cover(runs_root):
    printed = call(runs_root, "eval-first", "eval-second").stdout.splitlines()
    assert printed[-1].endswith("other samples, not another training run of the first or the second.")


def test_one_evaluation_is_scored_over_the_number_of_answers(runs_root):
    for number, boxes in enumerate(("44", "54", "55")):
        append(runs_root / "eval-second", f"q{number}", [(box, None) for box in boxes], benchmark="amc")
    curves = json.loads(call(runs_root, "eval-second", "--json").stdout)
    assert curves["amc"][0]["values"] == [0.5, pytest.approx(2 / 3)]
    assert curves["aime24"] == []
    printed = call(runs_root, "eval-second").stdout
    assert "amc              pass@k           1: 50.0 [0.0, 100.0]  2: 66.7 [0.0, 100.0]" in printed
    assert "best by log-prob not recorded" in printed


def test_nothing_scored_yet_says_what_to_do(tmp_path):
    assert "No scores yet; `exgrpo eval` adds some." in call(tmp_path).stdout
