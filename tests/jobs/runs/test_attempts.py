from datetime import UTC, datetime, timedelta

from exgrpo_core.run_files import attempt_gate
from jobs.runs.attempts import write_outcome_of_lost
from jobs.runs.control import RunStatus


def test_the_end_of_a_worker_that_never_came_is_by_the_clock_as_it_was_set_right_since(tmp_path, monkeypatch):
    monkeypatch.setattr(attempt_gate, "_BEGAN_AT", attempt_gate._BEGAN_AT - timedelta(hours=1))
    outcome = write_outcome_of_lost(tmp_path, RunStatus.LOST, "It never came.")
    assert abs(datetime.now(UTC) - outcome.at) < timedelta(minutes=1)
