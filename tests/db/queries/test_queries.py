import math
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from sqlalchemy import event, update

from db.ingest import annotations, events
from db.queries import buffer, lineage, metrics, run_methods, runs, trajectories
from db.queries.run_filter import RunFilter
from db.rows.runs import UnknownRunError
from db.tables import models
from exgrpo_core.step_report import BufferEvent, BufferEventKind
from jobs.runs.status import RunStatus
from jobs.specs.train import TrainSpec, load_preset
from tests.db.conftest import KINDS
from tests.db.recorded_runs import ingest_run, new_run, record_attempt, register
from tests.db.table_contents import buffer_changes
from tests.step_reports import make_report

NUM_STEPS = 10


@pytest.fixture(scope="module", params=KINDS)
def recorded_run(request, new_database, tmp_path_factory):
    """A database with a run of ten steps, and the run's id."""
    folder = tmp_path_factory.mktemp("recorded")
    database, run = new_database(request.param, folder), new_run(folder)
    record_attempt(run, range(1, NUM_STEPS + 1), end=RunStatus.SUCCEEDED)
    ingest_run(database, run)
    yield database, run.run_id
    database.close()


def recorded_with(database, tmp_path, change, steps=range(1, 25), spec=None):
    run = new_run(tmp_path, spec)
    record_attempt(run, steps, change=change)
    ingest_run(database, run)
    return runs.get_run(database, run.run_id)


def fresh_of(step):
    return [item for group in make_report(step).groups for item in group.trajectories]


def test_an_empty_database_answers_every_question(database):
    assert runs.list_runs(database) == []
    assert runs.get_run(database, "none") is None
    assert runs.count_runs(database) == {}
    assert runs.list_attempts(database, "none") == []
    assert runs.list_checkpoints(database, "none") == []
    assert metrics.metric_series(database, "none", ["reward/mean"]) == {"reward/mean": []}
    assert metrics.last_metrics(database, "none") == {}
    assert metrics.list_evaluations(database, "none") == []
    assert buffer.bucket_grid(database, "none") == []
    assert buffer.buffer_at(database, "none", 5) == {}
    assert buffer.candidates(database, "none", 5) == []
    with pytest.raises(UnknownRunError, match="no such run"):
        runs.run_spec(database, "none")


def test_a_run_row_says_what_the_run_is_and_how_far_it_got(recorded_run):
    database, recorded = recorded_run
    row = runs.get_run(database, recorded)
    assert (row.name, row.status, row.method, row.engine) == ("a run", "succeeded", "ExGRPO", "embedded")
    assert (row.model, row.dataset, row.preset) == ("chains-warm", "chains", None)
    assert (row.step, row.num_steps, row.attempt, row.health) == (NUM_STEPS, 50, 1, ())
    assert row.created_at <= row.started_at <= row.ended_at == row.last_event_at
    expected = [make_report(step).metrics["reward/pass_at_1"] for step in range(1, NUM_STEPS + 1)]
    assert row.pass_at_1_curve == pytest.approx(expected)
    assert row.last_pass_at_1 == pytest.approx(expected[-1])
    assert row.last_avg_at_n == pytest.approx((0 + 4 + 3) / 24)
    assert row.seconds_per_step == pytest.approx(0.25)
    assert runs.list_runs(database) == [row]
    assert runs.run_spec(database, recorded)["num_steps"] == 50


def test_runs_are_listed_newest_first_and_archived_ones_on_request(database, tmp_path):
    made = [new_run(tmp_path, run_id=name) for name in ("one", "two", "three")]
    for run in made:
        register(database, run)
    born = datetime(2026, 1, 1, tzinfo=UTC)
    for days, run in enumerate(made):
        is_it = models.runs.c.run_id == run.run_id
        values = {"created_at": born + timedelta(days=days)}
        database.write(lambda connection, c=is_it, v=values: connection.execute(update(models.runs).where(c).values(v)))
    annotations.set_archived(database, "two", True)
    assert [row.run_id for row in runs.list_runs(database)] == ["three", "one"]
    assert [row.run_id for row in runs.list_runs(database, RunFilter(is_archived=None), limit=2)] == ["three", "two"]
    assert runs.get_run(database, "two").run_id == "two"
    assert runs.count_runs(database) == {"queued": 2}


@pytest.mark.parametrize(
    ("preset", "method"),
    [
        ("paper-exgrpo", "ExGRPO"),
        ("paper-on-policy", "Dr.GRPO"),
        ("chains-grpo", "GRPO"),
        ("chains-masked-hard", "masked GRPO"),
        ("chains-luffy", "LUFFY"),
        ("paper-continual-luffy", "LUFFY"),
    ],
)
def test_the_method_follows_from_the_specification(preset, method):
    assert run_methods.method_name(load_preset(preset).model_dump(mode="json")) == method


def test_tags_and_notes_come_and_go_and_may_be_said_twice(recorded_run):
    database, recorded = recorded_run
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    for _ in range(2):
        annotations.add_tag(database, recorded, "good")
        annotations.add_tag(database, recorded, "best")
        annotations.remove_tag(database, recorded, "good")
        annotations.add_note(database, recorded, at, "look at step 3")
    assert runs.get_run(database, recorded).tags == ("best",)
    assert runs.list_notes(database, recorded) == [(at, "look at step 3")]


def test_what_users_say_is_kept_whatever_characters_it_holds(database, tmp_path):
    run = new_run(tmp_path)
    record_attempt(run, [1])
    ingest_run(database, run)
    recorded = run.run_id
    at = datetime(2026, 1, 1, tzinfo=UTC)
    annotations.add_note(database, recorded, at, "half \ud800 pair, nul \x00")
    annotations.add_tag(database, recorded, "odd \udfff")
    shown = "\N{REPLACEMENT CHARACTER}"
    assert runs.list_notes(database, recorded) == [(at, f"half {shown} pair, nul {shown}")]
    assert runs.get_run(database, recorded).tags == (f"odd {shown}",)
    annotations.remove_tag(database, recorded, "odd \udfff")
    assert runs.get_run(database, recorded).tags == ()


def test_checkpoints_are_those_that_the_run_still_keeps(database, tmp_path):
    run = new_run(tmp_path, TrainSpec(num_steps=50, num_checkpoints_kept=2))
    record_attempt(run, range(1, 17))
    ingest_run(database, run)
    kept = runs.list_checkpoints(database, run.run_id)
    assert [(row.step, row.path) for row in kept] == [
        (12, "checkpoints/step-00000012"),
        (16, "checkpoints/step-00000016"),
    ]


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

    row = recorded_with(database, tmp_path, spike, range(1, 101))
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

    row = recorded_with(database, tmp_path, only_first, range(1, 4))
    last = metrics.last_metrics(database, row.run_id)
    assert (last["policy/entropy"], last["seconds/step"]) == (0.5, 3.0)


def test_numbers_that_are_not_finite_come_back_as_they_were(database, tmp_path):
    def break_it(report):
        report.metrics["loss/total"] = [math.nan, math.inf, -math.inf][report.step - 1]

    row = recorded_with(database, tmp_path, break_it, range(1, 4))
    values = [point.value for point in metrics.metric_series(database, row.run_id, ["loss/total"])["loss/total"]]
    assert math.isnan(values[0])
    assert values[1:] == [math.inf, -math.inf]
    assert row.health == ("not_finite",)


def test_notices_are_those_of_the_newest_steps_that_gave_one(database, tmp_path):
    def change(report):
        report.notices = [f"left out {report.step}"] if report.step % 4 == 0 else []

    row = recorded_with(database, tmp_path, change, range(1, 18))
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


def test_buckets_are_listed_by_step_and_thinned_out_on_request(recorded_run):
    database, recorded = recorded_run
    rows = buffer.bucket_grid(database, recorded)
    assert [(row.step, row.bucket) for row in rows] == [(s, b) for s in range(1, NUM_STEPS + 1) for b in (1, 2, 3)]
    assert (rows[3].num_questions, rows[3].probability, rows[3].num_drawn) == (3, 0.25, 1)
    assert {row.step for row in buffer.bucket_grid(database, recorded, max_steps=3)} == {4, 8, 10}


def test_the_buffer_at_a_step_is_what_its_changes_add_up_to(recorded_run):
    database, recorded = recorded_run
    expected: dict[int, int] = {}
    for step in range(1, NUM_STEPS + 1):
        for change in make_report(step).buffer_events:
            if change.kind is BufferEventKind.MOVED:
                expected[change.question_index] = change.bucket_to
            elif change.kind is BufferEventKind.RETIRED:
                expected.pop(change.question_index)
        assert buffer.buffer_at(database, recorded, step) == expected
    assert buffer.buffer_at(database, recorded, 0) == {}
    assert buffer.buffer_at(database, recorded, 10_000) == expected


def test_a_branch_starts_from_its_parents_buffer(database, tmp_path):
    def moves(question_index, bucket):
        def change(report):
            report.buffer_events = [BufferEvent(BufferEventKind.MOVED, question_index, None, None, bucket)]

        return change

    parent = new_run(tmp_path, run_id="parent")
    record_attempt(parent, range(1, 4), change=moves(1, 2))
    record_attempt(parent, range(4, 7), change=moves(2, 3))
    branch = new_run(tmp_path, run_id="branch", parent_run_id="parent", branched_from_step=3)
    record_attempt(branch, range(4, 6), change=moves(5, 6))
    clone = new_run(tmp_path, run_id="clone", parent_run_id="parent")
    for run in (parent, branch, clone):
        ingest_run(database, run)
    assert buffer.buffer_at(database, "branch", 9) == {1: 2, 5: 6}
    assert buffer.buffer_at(database, "branch", 2) == {1: 2}
    assert buffer.buffer_at(database, "parent", 9) == {1: 2, 2: 3}
    assert buffer.buffer_at(database, "clone", 9) == {}


def test_changes_are_recorded_in_the_order_in_which_they_happened(recorded_run):
    expected = [
        (step, change.kind.value, change.question_index, change.trajectory_id, change.bucket_from, change.bucket_to)
        for step in range(1, NUM_STEPS + 1)
        for change in make_report(step).buffer_events
    ]
    assert buffer_changes(*recorded_run) == expected


def test_candidates_show_their_scores_and_which_one_was_chosen(recorded_run):
    database, recorded = recorded_run
    rows = buffer.candidates(database, recorded, 5)
    selections = sorted(make_report(5).selections, key=lambda selection: selection.question_index)
    assert len(rows) == sum(selection.entropies.size for selection in selections) == 4
    for selection, item in zip(selections, [rows[:2], rows[2:]], strict=True):
        assert [row.trajectory_id for row in item] == selection.trajectory_ids.tolist()
        assert [row.entropy for row in item] == selection.entropies.tolist()
        assert [row.is_chosen for row in item] == [False, True]
        assert math.isnan(item[0].score)
        assert {row.bucket for row in item} == {2}


def test_a_trajectory_comes_back_whole(recorded_run):
    database, recorded = recorded_run
    made = fresh_of(3)[2]
    row = trajectories.get_trajectory(database, recorded, made.trajectory_id)
    assert (row.text, row.reward, row.verdict, row.step) == (made.text, made.reward, made.verdict, 3)
    assert (row.question_id, row.is_valid, row.has_code) == (f"id{made.question_index:04d}", made.is_valid, False)
    assert row.mean_entropy == pytest.approx(float(made.entropies.mean()), rel=1e-6)
    file = trajectories.find_trajectory_file(database, recorded, made.trajectory_id)
    assert file == "attempts/0001/trajectories/step-00000003.parquet"
    assert trajectories.get_trajectory(database, recorded, 10_000) is None


def test_replays_of_a_trajectory_are_counted_and_listed(database, tmp_path):
    def replay_the_first(report):
        for group in report.groups:
            if group.replay is not None:
                stored = group.replay.experience
                changed = type(stored)(0, 0, stored.question_index, 1, 1.0, stored.token_ids, stored.behavior_log_probs)
                group.replay = type(group.replay)(changed, stored.behavior_log_probs, group.replay.entropies)
                return

    row = recorded_with(database, tmp_path, replay_the_first, range(1, 4))
    first = trajectories.get_trajectory(database, row.run_id, 0)
    assert first.num_replays == 2
    events = lineage.lineage(database, row.run_id, 0, first.question_index, first.step)
    replays = [(event.step, event.mean_ratio, event.max_ratio) for event in events if event.kind == "replayed"]
    assert replays == [(2, 1.0, 1.0), (3, 1.0, 1.0)]


def without_reward(report):
    report.metrics |= {"reward/mean": 0.0, "reward/pass_at_1": 0.0, "buffer/num_questions": 0.0}
    report.is_started = False


def collapsing(report):
    report.metrics["policy/entropy"] = 0.5 if report.step < 10 else 0.024


def all_retired(report):
    report.metrics |= {"buffer/num_questions": 0.0, "buffer/num_retired": 16.0}


def emptied(report):
    report.metrics["buffer/num_questions"] = 0.0


def rewarded_once(report):
    report.metrics |= {"reward/mean": float(report.step == 5), "reward/pass_at_1": 0.0}


@pytest.mark.parametrize(
    ("change", "num_steps", "health"),
    [
        (without_reward, 19, ()),
        (without_reward, 20, ("no_reward", "empty_buffer")),
        (rewarded_once, 24, ()),
        (rewarded_once, 25, ("no_reward",)),
        (collapsing, 9, ()),
        (collapsing, 10, ("entropy_collapse",)),
        (emptied, 19, ()),
        (emptied, 20, ("empty_buffer",)),
        (all_retired, 20, ("all_retired",)),
    ],
)
def test_health_says_what_is_wrong(database, tmp_path, change, num_steps, health):
    assert recorded_with(database, tmp_path, change, range(1, num_steps + 1)).health == health


def test_an_on_policy_run_is_not_blamed_for_its_empty_buffer(database, tmp_path):
    spec = load_preset("chains-on-policy")
    assert recorded_with(database, tmp_path, emptied, range(1, 25), spec).health == ()


def test_a_run_of_long_steps_is_not_stalled_before_several_of_them_have_passed(database, tmp_path):
    run = new_run(tmp_path)
    record_attempt(run, range(1, 3))
    ingest_run(database, run)
    for seconds, health in ((299, ()), (301, ("stalled",))):
        long_ago = datetime.now(UTC) - timedelta(seconds=seconds)
        change = update(models.runs).values(last_event_at=long_ago, summary={"seconds_per_step": 60.0})
        database.write(lambda connection, change=change: connection.execute(change))
        assert runs.get_run(database, run.run_id).health == health


def test_a_running_run_that_has_been_silent_for_a_minute_is_stalled(database, tmp_path):
    run = new_run(tmp_path)
    record_attempt(run, range(1, 3))
    ingest_run(database, run)
    assert runs.get_run(database, run.run_id).health == ()
    long_ago = datetime.now(UTC) - timedelta(seconds=61)
    change = update(models.runs).values(last_event_at=long_ago)
    database.write(lambda connection: connection.execute(change))
    assert runs.get_run(database, run.run_id).health == ("stalled",)
    events.set_status(database, run.run_id, "stopped")
    assert runs.get_run(database, run.run_id).health == ()


def test_listing_runs_takes_the_same_number_of_statements_for_one_and_for_many(database, tmp_path):
    statements = []

    def count(*arguments):
        statements.append(arguments[2])

    event.listen(database.engine, "before_cursor_execute", count)
    numbers = []
    for name in ("one", "two", "three"):
        register(database, new_run(tmp_path, run_id=name))
        statements.clear()
        runs.list_runs(database)
        numbers.append(len(statements))
    assert len(set(numbers)) == 1
