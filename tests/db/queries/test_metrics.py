import math
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from sqlalchemy import update

from exgrpo.db.queries import metrics, runs
from exgrpo.db.queries.whole_tables import whole_table
from exgrpo.db.rows.runs import RewardCountRow
from exgrpo.db.tables import models
from exgrpo.jobs.runs.report import report_run
from tests.db.conftest import on_sqlite
from tests.db.recorded_runs import ingest_changed_run, ingest_run, new_run, record_attempt
from tests.step_reports import make_report

pytestmark = pytest.mark.slow

SCORE = "reward/pass_at_1"
NUM_STEPS = 200


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


@on_sqlite
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


@on_sqlite
def test_notices_are_those_of_the_newest_steps_that_gave_one(database, tmp_path):
    def change(report):
        report.notices = [f"left out {report.step}"] if report.step % 4 == 0 else []

    row = ingest_changed_run(database, tmp_path, change, range(1, 18))
    assert metrics.step_notices(database, row.run_id, limit=2) == [(16, "left out 16"), (12, "left out 12")]


@on_sqlite
def test_replay_ratios_are_the_means_of_evenly_spread_steps_and_the_last(database, tmp_path):
    row = ingest_changed_run(database, tmp_path, None, range(1, 12))
    replays = {step: [item for group in make_report(step).groups for item in group.replays] for step in range(1, 12)}
    ratios = {
        step: [np.exp(item.old_log_probs - item.experience.behavior_log_probs).mean() for item in items]
        for step, items in replays.items()
        if items
    }
    found = metrics.replay_ratios(database, row.run_id, max_steps=4)
    last = max(ratios)
    stride = -(-(last - min(ratios) + 1) // 4)
    assert found.keys() == {step for step in ratios if step % stride == 0 or step == last}
    assert last % stride
    assert all(sorted(found[step]) == pytest.approx(sorted(ratios[step]), rel=1e-5) for step in found)


def recorded(database, tmp_path, values_of_step, steps):
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
        found["tokens/generated_total"] = 50.0 * step
        if step in (3, 151):
            found["policy/entropy"] = {3: 2.0, 151: 0.05}[step]
        return found

    run_id = recorded(database, tmp_path, values, [range(1, NUM_STEPS + 1)])
    row = runs.get_run(database, run_id)
    assert (row.last_pass_at_1, row.seconds_per_step, row.generated_tokens) == (0.199, 3.0, 50.0 * NUM_STEPS)
    assert set(row.health) == {"no_reward", "entropy_collapse"}
    assert row.pass_at_1_curve == tuple([step / 1000 for step in range(6, NUM_STEPS - 1, 6)] + [0.199])


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


def test_seconds_add_up_over_steps_and_what_was_not_measured_takes_none(database, tmp_path):
    seconds = [math.nan, 1.0, 2.0, math.nan, 4.0]
    run_id = recorded(database, tmp_path, lambda _, step: {"seconds/step": seconds[step - 1]}, [range(1, 6)])
    assert metrics.training_seconds(database, run_id) == [(1, 0.0), (2, 1.0), (3, 3.0), (4, 3.0), (5, 7.0)]
    assert metrics.training_seconds(database, run_id, max_points=2) == [(3, 3.0), (5, 7.0)]


def test_a_branch_of_a_branch_counts_from_the_first_parent_without_what_they_did_later(database, tmp_path):
    def set_seconds(report):
        report.metrics |= {"seconds/step": float(report.step)}

    parent = None
    for name, first, last in (("first", 1, 9), ("second", 5, 12), ("third", 9, 16)):
        origin = {} if parent is None else {"parent_run_id": parent.run_id, "branched_from_step": first - 1}
        parent = new_run(tmp_path, run_id=name, **origin)
        record_attempt(parent, range(first, last + 1), change=set_seconds)
        ingest_run(database, parent)
    assert runs.get_run(database, "third").branched_from_step == 8
    points = {
        is_whole: metrics.metric_series(database, "third", ["seconds/step"], with_parents=is_whole)["seconds/step"]
        for is_whole in (False, True)
    }
    assert points == {False: [(step, step) for step in range(9, 17)], True: [(step, step) for step in range(1, 17)]}
    # With a minute between steps; the first step of each run counts from its start, here as many seconds as its number.
    with database.engine.begin() as connection:
        for step in range(1, 17):
            at = datetime(2026, 1, 1, 0, step, tzinfo=UTC)
            connection.execute(update(models.steps).where(models.steps.c.step == step).values(at=at))
    own = metrics.clock_seconds(database, "third")
    assert own == [(step, 9.0 + 60.0 * (step - 9)) for step in range(9, 17)]
    clock = metrics.clock_seconds(database, "third", with_parents=True)
    assert [point.step for point in clock] == [*range(1, 17)]
    # Steps 1 to 4 of the first run, then 5 to 8 of the second.
    assert clock[7].value == (1.0 + 3 * 60.0) + (5.0 + 3 * 60.0)
    assert clock[8:] == [(step, clock[7].value + seconds) for step, seconds in own]
    thinned = metrics.clock_seconds(database, "third", 3, with_parents=True)
    assert thinned == [clock[step - 1] for step in (6, 12, 16)]
    # 1 + 2 + ... + 16
    assert metrics.training_seconds(database, "third")[-1] == (16, 136.0)
    assert [row.step for row in metrics.list_evaluations(database, "third")] == [12, 16]
    assert [row.step for row in metrics.list_evaluations(database, "third", with_parents=True)] == [4, 8, 12, 16]
    rows = whole_table(database, "third", "evaluations")
    ends = [(row["interval_low"], row["interval_high"]) for row in rows]
    assert ends == [row.interval for row in metrics.list_evaluations(database, "third")]
    # The third question of three goes from 4 of 8 to 1 of 8; since the own first evaluation it would be from 2.
    assert metrics.held_out_gain(database, "third").value == pytest.approx((1 - 4) / 8 / 3)
    assert metrics.held_out_gain(database, "first").value == pytest.approx((3 - 4) / 8 / 3)
    report = report_run(database, "third")
    assert (report["seconds"], report["evaluations"]["held_out"]["before"]["step"]) == (136.0, 4)


@on_sqlite
def test_a_run_that_names_itself_as_its_parent_has_each_step_once(database, tmp_path):
    run = new_run(tmp_path, run_id="own", parent_run_id="own", branched_from_step=4)
    record_attempt(run, range(5, 9))
    ingest_run(database, run)
    [points] = metrics.metric_series(database, "own", ["reward/mean"], with_parents=True).values()
    assert [point.step for point in points] == [5, 6, 7, 8]


@on_sqlite
def test_a_branch_without_an_evaluation_of_its_own_has_no_gain(database, tmp_path):
    parent = new_run(tmp_path, run_id="parent")
    record_attempt(parent, range(1, 9))
    child = new_run(tmp_path, run_id="child", parent_run_id="parent", branched_from_step=8)
    record_attempt(child, [9])
    for run in (parent, child):
        ingest_run(database, run)
    assert metrics.held_out_gain(database, "child") is None


def rewarded(database, tmp_path, reward_of, steps=range(1, 4)):
    """Record a superseded attempt, then one with these rewards of step and place; return the run's id."""

    def change(report):
        fresh = [item for group in report.groups for item in group.trajectories]
        for place, item in enumerate(fresh):
            item.reward = reward_of(report.step, place)
            if report.step == 3:
                item.reward_parts = {"format": float(place % 2), "mine:code": 0.25}

    run = new_run(tmp_path)
    record_attempt(run, steps)
    record_attempt(run, steps, change=change)
    ingest_run(database, run)
    return run.run_id


def test_rewards_and_their_parts_are_counted_by_step(database, tmp_path):
    run_id = rewarded(database, tmp_path, lambda step, place: [math.nan, 0.0, step / 2][place % 3])
    rows = metrics.reward_counts(database, run_id)
    # Step 1 has 12 fresh responses, the others 10.
    counts = {(1, 0.0): 4, (1, 0.5): 4, (2, 0.0): 3, (2, 1.0): 3, (3, 0.0): 3, (3, 1.5): 3}
    whole = [RewardCountRow(step, "reward", value, value, num) for (step, value), num in counts.items()]
    parts = [("format", 0.0, 5), ("format", 1.0, 5), ("mine:code", 0.25, 10)]
    assert rows == whole + [RewardCountRow(3, part, value, value, num) for part, value, num in parts]
    assert {row.step for row in metrics.reward_counts(database, run_id, steps=2)} == {1, 3}
    assert metrics.reward_counts(database, "nobody") == []


@on_sqlite
def test_many_different_rewards_are_counted_in_even_bins(database, tmp_path):
    run_id = rewarded(database, tmp_path, lambda step, place: 10 * (step - 1) + place, range(1, 8))
    rows = [row for row in metrics.reward_counts(database, run_id) if row.part == metrics.WHOLE_REWARD]
    # Step 1 has 0 to 11, step 2 has 10 to 19, and so on up to 69: 30 bins of 2.3.
    assert [(row.step, row.least, row.largest) for row in rows][:2] == [(1, 0.0, 2.3), (1, 2.3, 4.6)]
    assert [row.num_responses for row in rows if row.step == 1] == [3, 2, 2, 3, 2]
    assert (rows[-1].largest, sum(row.num_responses for row in rows if row.step == 7)) == (69.0, 10)
    assert len({row.least for row in rows}) <= metrics.MAX_REWARD_BINS


@pytest.mark.parametrize(
    ("seconds", "expected"), [((0, 60, -3540, -3480), (0, 60, 60, 120)), ((0, -60, 0, 60), (0, 0, 60, 120))]
)
@on_sqlite
def test_the_clock_of_a_run_never_goes_back(database, tmp_path, seconds, expected):
    row = ingest_changed_run(
        database, tmp_path, lambda report: report.metrics.pop("seconds/step"), range(1, 1 + len(seconds))
    )
    table, start = models.steps, datetime(2026, 1, 1, tzinfo=UTC)
    with database.engine.begin() as connection:
        for step, after in enumerate(seconds, start=1):
            change = update(table).where(table.c.step == step).values(at=start + timedelta(seconds=after))
            connection.execute(change)
    assert [point.value for point in metrics.clock_seconds(database, row.run_id)] == [*expected]
