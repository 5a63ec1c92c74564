import math

import numpy as np
import pytest

from db.queries import metrics
from tests.db.recorded_runs import ingest_changed_run, ingest_run, new_run, record_attempt


def test_a_series_holds_recorded_values_and_always_the_newest(database, tmp_path):
    def set_seconds(report):
        report.metrics["seconds/step"] = float(report.step)
        if report.step < 90:
            report.metrics.pop("policy/entropy")

    run = new_run(tmp_path)
    record_attempt(run, range(1, 102), change=set_seconds)
    ingest_run(database, run)
    keys = ["seconds/step", "policy/entropy", "never/recorded"]
    series = metrics.metric_series(database, run.run_id, keys, max_points=10)
    assert series["never/recorded"] == []
    points = series["seconds/step"]
    assert all(point.value == point.step for point in points)
    assert len(points) <= 10
    assert [points[0].step, points[-1].step] == [1, 101]
    assert max(np.diff([point.step for point in points])) <= 30
    assert series["policy/entropy"][0].step <= 91
    whole = metrics.metric_series(database, run.run_id, ["seconds/step"])["seconds/step"]
    assert [point.step for point in whole] == list(range(1, 102))


def test_a_thinned_series_keeps_the_extremes_and_says_where_nothing_was_measured(database, tmp_path):
    rare = {17: 9.0, 18: -9.0, 40: math.inf, **dict.fromkeys(range(60, 90), math.nan)}

    def spike(report):
        report.metrics["loss/total"] = rare.get(report.step, 0.5 + report.step / 1000)

    row = ingest_changed_run(database, tmp_path, spike, range(1, 101))
    points = metrics.metric_series(database, row.run_id, ["loss/total"], max_points=20)["loss/total"]
    values = {point.step: point.value for point in points}
    assert len(points) <= 20
    assert [point.step for point in points] == sorted(values)
    assert (values[17], values[18], values[40]) == (9.0, -9.0, math.inf)
    assert any(math.isnan(value) for value in values.values())
    assert all(value == rare.get(step, 0.5 + step / 1000) or math.isnan(value) for step, value in values.items())


def test_the_last_metrics_are_the_newest_of_each_key(database, tmp_path):
    def only_first(report):
        if report.step > 1:
            report.metrics.pop("policy/entropy")
        report.metrics["seconds/step"] = float(report.step)

    row = ingest_changed_run(database, tmp_path, only_first, range(1, 4))
    last = metrics.last_metrics(database, row.run_id)
    assert (last["policy/entropy"], last["seconds/step"]) == (0.5, 3.0)


def test_numbers_that_are_not_finite_come_back_as_they_were(database, tmp_path):
    def break_it(report):
        report.metrics["loss/total"] = [math.nan, math.inf, -math.inf][report.step - 1]

    row = ingest_changed_run(database, tmp_path, break_it, range(1, 4))
    values = [point.value for point in metrics.metric_series(database, row.run_id, ["loss/total"])["loss/total"]]
    assert math.isnan(values[0])
    assert values[1:] == [math.inf, -math.inf]
    assert row.health == ("not_finite",)


def test_notices_are_those_of_the_newest_steps_that_gave_one(database, tmp_path):
    def change(report):
        report.notices = [f"left out {report.step}"] if report.step % 4 == 0 else []

    row = ingest_changed_run(database, tmp_path, change, range(1, 18))
    assert metrics.step_notices(database, row.run_id, limit=2) == [(16, "left out 16"), (12, "left out 12")]
    assert metrics.step_notices(database, "none") == []


def test_evaluations_have_a_standard_error_over_questions(recorded_run):
    database, recorded = recorded_run
    rows = metrics.list_evaluations(database, recorded)
    assert [(row.step, row.question_set, row.num_questions) for row in rows] == [(4, "held_out", 3), (8, "held_out", 3)]
    # Of 8 samples 0, 4 and 4 were correct: rates 0, .5 and .5, mean 1/3, standard deviation .2887, over sqrt(3).
    assert rows[0].avg_at_n == pytest.approx(1 / 3)
    assert rows[0].standard_error == pytest.approx(0.288675 / math.sqrt(3), rel=1e-5)
    assert rows[0].pass_at_n == pytest.approx(2 / 3)
