import pytest
from typer.testing import CliRunner

from jobs.cli.main import app
from tests.app import recorded, scored

NARROW = CliRunner(env={"NO_COLOR": "1", "COLUMNS": "80"})


@pytest.fixture
def long_ids(tmp_path):
    """A runs root with ids as long as those that are made, and long names."""
    for number, run in enumerate((recorded.FINISHED, recorded.FAILED, recorded.QUEUED)):
        name = f"{run.name} with many more words and a number {number}"
        run_id = f"20261125-001149-a6acf{number}"
        recorded.record(tmp_path, recorded.RecordedRun(run_id, name, run.status, run.num_done, run.preset))
    return tmp_path


def test_a_narrow_terminal_cuts_neither_ids_states_nor_scores(long_ids):
    printed = NARROW.invoke(app, ["runs", "--runs-root", str(long_ids)]).stdout
    assert max(map(len, printed.splitlines())) <= 80
    words = printed.split()
    for whole in (
        "20261125-001149-a6acf0",
        "20261125-001149-a6acf2",
        "finished",
        "failed",
        "queued",
        "30/30",
        "ExGRPO",
    ):
        assert whole in words, whole
    assert {"many", "number", "Avg@n", "Pass@1", "0.562"} <= set(words)


def test_an_evaluation_has_no_count_of_steps_and_its_kind_is_one_word(tmp_path):
    scored.record_unfinished(tmp_path)
    printed = NARROW.invoke(app, ["runs", "--runs-root", str(tmp_path)]).stdout
    assert "evaluation" in printed.split()
    assert "0/0" not in printed
