import pytest
from typer.testing import CliRunner

from db.connections.opening import open_database
from db.queries import runs
from jobs.cli import main
from jobs.cli.seeding import recorded_run
from jobs.runs.attempts import write_outcome
from jobs.runs.status import RunStatus
from tests.db.recorded_runs import new_run, record_attempt


@pytest.fixture
def runs_root(tmp_path):
    """A runs root with two runs that fit and one that is too short; the newest that fits is `second`."""
    for run_id, num_steps in (("20260101-first", 22), ("20260102-second", 21), ("20260103-short", 4)):
        run = new_run(tmp_path, run_id=run_id)
        record_attempt(run, range(1, num_steps + 1), end=RunStatus.FINISHED)
        write_outcome(run.attempt_path(1), RunStatus.FINISHED, "")
    return tmp_path


def test_the_newest_run_that_replayed_for_long_enough_is_taken(runs_root):
    messages = []
    assert recorded_run(runs_root, None, messages.append) == "20260102-second"
    assert messages == ["Recorded run: 20260102-second."]


def test_the_command_fills_the_database_once_and_marks_what_it_made(runs_root):
    options = ["--runs", "3", "--steps", "10", "--trajectories", "50", "--runs-root", str(runs_root)]
    first = CliRunner().invoke(main.app, ["seed-demo", "--from", "first", *options])
    assert first.exit_code == 0, first.output
    assert "Recorded run" not in first.output
    assert first.output.splitlines()[-1] == "3 synthetic runs."
    database = open_database(None, runs_root)
    made = [row for row in runs.list_runs(database) if row.is_synthetic]
    database.close()
    assert [row.name for row in made] == ["synthetic 00003", "synthetic 00002", "synthetic 00001"]
    again = CliRunner().invoke(main.app, ["seed-demo", *options])
    assert again.exit_code == 1
    assert "holds synthetic runs already; `exgrpo db rebuild` removes them." in again.output
    rebuilt = CliRunner().invoke(main.app, ["db", "rebuild", "--runs-root", str(runs_root)])
    assert rebuilt.output == "Built again from 3 runs.\n"
    database = open_database(None, runs_root)
    assert not any(row.is_synthetic for row in runs.list_runs(database))
    database.close()
