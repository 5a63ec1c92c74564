from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import update

from exgrpo.db.ingest import events
from exgrpo.db.queries import runs
from exgrpo.db.tables import models
from exgrpo.jobs.specs.train import RecordingSpec, load_preset
from exgrpo_core.recording.file_recorder import FileRecorder
from exgrpo_core.recording.recorder import EvaluationRecord
from tests.db.conftest import on_sqlite
from tests.db.recorded_runs import ingest_changed_run, ingest_run, new_run, record_attempt

pytestmark = pytest.mark.slow


def without_reward(report):
    report.metrics |= {"reward/mean": 0.0, "reward/pass_at_1": 0.0, "buffer/num_questions": 0.0}
    report.is_replay_open = False


def collapsing(report):
    report.metrics["policy/entropy"] = 0.5 if report.step < 10 else 0.024


def all_retired(report):
    report.metrics |= {"buffer/num_questions": 0.0, "buffer/num_retired": 16.0}


def emptied(report):
    report.metrics["buffer/num_questions"] = 0.0


def rewarded_once(report):
    report.metrics |= {"reward/mean": float(report.step == 5), "reward/pass_at_1": 0.0}


def equal_groups(report):
    report.metrics["batch/questions_left"] = float(report.step == 5)


def equal_without_reward(report):
    without_reward(report)
    equal_groups(report)


@pytest.mark.parametrize(
    ("change", "num_steps", "health"),
    [
        (without_reward, 19, ()), (without_reward, 20, ("no_reward", "empty_buffer")), (rewarded_once, 24, ()),
        (rewarded_once, 25, ("no_reward",)), (equal_groups, 24, ()), (equal_groups, 25, ("no_gradient",)),
        (equal_without_reward, 25, ("no_reward", "empty_buffer")), (collapsing, 9, ()),
        (collapsing, 10, ("entropy_collapse",)), (emptied, 19, ()), (emptied, 20, ("empty_buffer",)),
        (all_retired, 20, ("all_retired",)),
    ],
)  # fmt: skip
@on_sqlite
def test_health_says_what_is_wrong(database, tmp_path, change, num_steps, health):
    assert ingest_changed_run(database, tmp_path, change, range(1, num_steps + 1)).health == health


@on_sqlite
def test_an_on_policy_run_is_not_blamed_for_its_empty_buffer(database, tmp_path):
    spec = load_preset("chains-on-policy")
    assert ingest_changed_run(database, tmp_path, emptied, range(1, 25), spec).health == ()


@on_sqlite
def test_the_score_is_the_newest_on_held_out_questions(database, tmp_path):
    run = new_run(tmp_path)
    record_attempt(run, range(1, 5))
    recorder = FileRecorder(run, run.claim_attempt(), RecordingSpec())
    recorder.evaluation(EvaluationRecord(9, "training", ["a"], [8], 8, 0.6, 1.5))
    recorder.close()
    ingest_run(database, run)
    assert runs.get_run(database, run.run_id).last_avg_at_n == pytest.approx((0 + 4 + 4) / 24)


def test_a_running_run_is_stalled_after_a_minute_or_several_of_its_steps(database, tmp_path):
    run = new_run(tmp_path)
    record_attempt(run, range(1, 3))
    ingest_run(database, run)
    for step_seconds, silent_seconds, health in (
        (None, 50, ()), (None, 61, ("stalled",)), (60.0, 270, ()), (60.0, 301, ("stalled",)),
    ):  # fmt: skip
        values = {"last_event_at": datetime.now(UTC) - timedelta(seconds=silent_seconds)}
        values |= {} if step_seconds is None else {"summary": {"seconds_per_step": step_seconds}}
        change = update(models.runs).values(**values)
        database.write(lambda connection, change=change: connection.execute(change))
        assert runs.get_run(database, run.run_id).health == health
    events.set_status(database, run.run_id, "stopped")
    assert runs.get_run(database, run.run_id).health == ()
