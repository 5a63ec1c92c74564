import itertools
import math

import pytest
from sqlalchemy import select

from db.queries import metrics, runs
from db.tables import models
from db.tables.metric_values import stored_names
from tests.db.recorded_runs import ingest_run, new_run, record_attempt

SCORE = "reward/pass_at_1"
NUM_STEPS = 200


def recorded(database, tmp_path, values_of_step, steps):
    """Return the id of a run whose steps recorded just these metrics, one attempt for each range of steps."""
    run = new_run(tmp_path)

    def change(report):
        report.metrics.clear()
        report.metrics.update(values_of_step(run.attempts()[-1], report.step))

    for step in steps:
        record_attempt(run, step, change=change)
    ingest_run(database, run)
    return run.run_id


def test_the_summary_of_a_long_run_has_its_first_newest_and_recent_values(database, tmp_path):
    def values(_attempt, step):
        found = {"reward/mean": 0.0 if step > 180 else 1.0, "seconds/step": 1.0 if step <= 180 else 3.0}
        if step < NUM_STEPS:
            found[SCORE] = step / 1000
        if step in (3, 151):
            found["policy/entropy"] = {3: 2.0, 151: 0.05}[step]
        return found

    run_id = recorded(database, tmp_path, values, [range(1, NUM_STEPS + 1)])
    row = runs.get_run(database, run_id)
    assert (row.last_pass_at_1, row.seconds_per_step) == (0.199, 3.0)
    assert set(row.health) == {"no_reward", "entropy_collapse"}
    assert row.pass_at_1_curve == tuple([step / 1000 for step in range(6, NUM_STEPS - 1, 6)] + [0.199])


def test_a_score_that_few_steps_have_is_shown_whole(database, tmp_path):
    scored = [*range(1, NUM_STEPS, 10)]
    run_id = recorded(
        database, tmp_path, lambda _, step: {SCORE: float(step)} if step in scored else {}, [range(1, NUM_STEPS + 1)]
    )
    assert runs.get_run(database, run_id).pass_at_1_curve == tuple(map(float, scored))


def test_attempts_that_record_other_metrics_are_read_as_one_run(database, tmp_path):
    def values(attempt, step):
        return {"a": float(step), "b": attempt + 0.5} if attempt == 1 else {"c": -1.0, "a": 100.0 + step}

    run_id = recorded(database, tmp_path, values, [range(1, 7), range(5, 9)])
    expected = [(step, float(step)) for step in range(1, 5)] + [(step, 100.0 + step) for step in range(5, 9)]
    together = metrics.metric_series(database, run_id, ["a", "b", "c", "d"])
    alone = {key: metrics.metric_series(database, run_id, [key])[key] for key in together}
    assert together == alone
    assert together["a"] == expected
    assert together["b"] == [(step, 1.5) for step in range(1, 5)]
    assert together["c"] == [(step, -1.0) for step in range(5, 9)]
    assert together["d"] == []
    assert metrics.last_metrics(database, run_id) == {"a": 108.0, "b": 1.5, "c": -1.0}


def test_a_run_may_record_other_metrics_in_every_step(database, tmp_path):
    run_id = recorded(database, tmp_path, lambda _, step: {f"own/{step}": 1.0, "a": float(step)}, [range(1, 301)])
    assert metrics.metric_series(database, run_id, ["a"])["a"] == [(step, float(step)) for step in range(1, 301)]
    assert metrics.metric_series(database, run_id, ["own/7", "own/8"]) == {"own/7": [(7, 1.0)], "own/8": [(8, 1.0)]}
    assert len(metrics.last_metrics(database, run_id)) == 301


def test_steps_without_metrics_have_no_values(database, tmp_path):
    run_id = recorded(database, tmp_path, lambda _, step: {"a": 1.0} if step == 2 else {}, [range(1, 4)])
    assert metrics.metric_series(database, run_id, ["a"]) == {"a": [(2, 1.0)]}
    with database.read() as connection:
        query = select(models.steps.c.metric_values).order_by(models.steps.c.step)
        assert [value is None for value in connection.scalars(query)] == [True, False, True]


def test_names_in_another_order_and_names_that_no_database_takes_are_stored(database, tmp_path):
    orders = itertools.cycle([("a", "b\x00"), ("b\x00", "a")])
    run_id = recorded(database, tmp_path, lambda _, step: dict.fromkeys(next(orders), float(step)), [range(1, 5)])
    assert metrics.last_metrics(database, run_id) == {"a": 4.0, "b\N{REPLACEMENT CHARACTER}": 4.0}
    with database.read() as connection:
        assert len(connection.execute(select(models.metric_names)).all()) == 1


@pytest.mark.parametrize("names", [("a",), ("a", "b"), ("b", "a"), ("ab",), tuple(map(str, range(500)))])
def test_keys_of_names_fit_into_a_column_and_differ(names):
    key, stored = stored_names(names)
    assert stored == [*names]
    assert 0 <= key < 2**63
    assert key != stored_names((*names, "more"))[0]
    assert key != stored_names(tuple(reversed(names)))[0] or len(names) == 1


def test_seconds_add_up_over_steps_and_what_was_not_measured_takes_none(database, tmp_path):
    seconds = [math.nan, 1.0, 2.0, math.nan, 4.0]
    run_id = recorded(database, tmp_path, lambda _, step: {"seconds/step": seconds[step - 1]}, [range(1, 6)])
    assert metrics.training_seconds(database, run_id) == [(1, 0.0), (2, 1.0), (3, 3.0), (4, 3.0), (5, 7.0)]
    assert metrics.training_seconds(database, run_id, max_points=2) == [(3, 3.0), (5, 7.0)]
    assert metrics.training_seconds(database, "none") == []
