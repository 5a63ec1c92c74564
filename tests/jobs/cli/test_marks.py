import pytest
from typer.testing import CliRunner

from jobs.cli.main import app
from tests.jobs.cli.invoked import exgrpo, printed_json
from tests.jobs.judging.chain_runs import record_chains


@pytest.fixture
def runs_root(tmp_path):
    record_chains(tmp_path, [["valid", "wrong"]])
    return tmp_path


def test_marked_trajectories_are_listed_until_the_mark_is_taken_off(runs_root):
    exgrpo(runs_root, "mark", "trained", "1", "odd", "--comment", "skips a step")
    assert printed_json(runs_root, "marks") == [{"mark": "odd", "num_trajectories": 1, "num_runs": 1}]
    assert "odd: 1 trajectory of 1 run\n" in exgrpo(runs_root, "marks")
    [row] = printed_json(runs_root, "marks", "odd")
    assert row["marked"] == {
        "run_id": "trained", "attempt": 1, "trajectory_id": 1, "mark": "odd", "comment": "skips a step",
    }  # fmt: skip
    assert "skips a step" in exgrpo(runs_root, "marks", "odd")
    exgrpo(runs_root, "mark", "trained", "1", "odd", "--undo")
    assert "does not have the mark 'odd'" in exgrpo(runs_root, "mark", "trained", "1", "odd", "--undo", code=2)
    assert printed_json(runs_root, "marks") == []


def test_unknown_trajectory_and_empty_mark_are_refused(runs_root):
    assert "trained: has no trajectory 99" in exgrpo(runs_root, "mark", "trained", "99", "odd", code=2)
    assert "mark: expected a name" in exgrpo(runs_root, "mark", "trained", "1", " ", code=2)


def test_an_empty_answer_is_said_beside_the_result(runs_root):
    def printed(*words):
        result = CliRunner().invoke(app, [*words, "--runs-root", str(runs_root)])
        assert (result.exit_code, result.stdout) == (0, "")
        assert printed_json(runs_root, *words) == []
        return result.stderr

    assert "No trajectory is marked yet" in printed("marks")
    assert "No trajectory is marked yet" in printed("marks", "nope")
    exgrpo(runs_root, "mark", "trained", "1", "odd")
    assert printed("marks", "nope") == "No trajectory has the mark 'nope'; the marks are: odd.\n"
