import math

import pytest
from sqlalchemy import event, func, insert, select, update

from exgrpo.db.queries import lineage, replay_concentration, trajectory_list
from exgrpo.db.rows.trajectories import TrajectoryFacets, TrajectoryOrder, TrajectorySortKey
from exgrpo.db.tables import models
from exgrpo_core.recording.run_status import RunStatus
from tests.db.conftest import KINDS
from tests.db.recorded_chains import Response, Step, record_steps
from tests.db.recorded_runs import ingest_run, new_run, record_attempt
from tests.step_reports import make_report

NUM_STEPS = 8


@pytest.fixture(scope="module", params=KINDS)
def two_runs(request, new_database, tmp_path_factory):
    """A database with two runs of the same trajectories; the second one is newer."""
    folder = tmp_path_factory.mktemp("listed")
    database = new_database(request.param, folder)
    for name in ("first", "second"):
        run = new_run(folder, run_id=name)
        record_attempt(run, range(1, NUM_STEPS + 1), end=RunStatus.FINISHED)
        ingest_run(database, run)
    yield database
    database.close()


def ids(rows):
    return [(row.run_id, row.trajectory_id) for row in rows]


def newest_first(*run_ids, last_step=NUM_STEPS):
    made = [
        item for step in range(1, last_step + 1) for group in make_report(step).groups for item in group.trajectories
    ]
    return [(run_id, item.trajectory_id) for run_id in run_ids for item in reversed(made)]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("number7", {7}), ("NUMBER7 step1", {7}), ("number7 step2", set()), ("says number7", {7}),
        ('number7" OR "number8', set()), ("text:number7 NEAR -x*", set()), ("\\boxed{4} step1", {0, 1, 2}),
        ("***", set()),
    ],
)  # fmt: skip
def test_search_finds_texts_that_hold_every_word(two_runs, words, expected):
    rows = trajectory_list.list_snippets(two_runs, TrajectoryFacets("first", words))
    assert {row.trajectory_id for row in rows} == expected


@pytest.mark.parametrize("words", ["", "trajectory"])
def test_pages_over_all_runs_go_through_everything_once_newest_first(two_runs, words):
    where, snippets, before = TrajectoryFacets(words=words), [], None
    while page := trajectory_list.list_snippets(two_runs, where, before=before, limit=7):
        snippets += page
        before = page[-1].trajectory_key
    assert ids(snippets) == newest_first("second", "first")


def test_a_page_is_filled_from_far_below_the_newest_ones_with_the_words(two_runs, monkeypatch):
    monkeypatch.setattr(trajectory_list, "FEW_NEWEST", 1)
    monkeypatch.setattr(trajectory_list, "NUM_NEWEST", 2)
    where = TrajectoryFacets(run_id="first", words="trajectory", step_to=3)
    assert ids(trajectory_list.list_snippets(two_runs, where, limit=3)) == newest_first("first", last_step=3)[:3]


@pytest.mark.parametrize("key", [*TrajectorySortKey])
@pytest.mark.parametrize("is_descending", [False, True])
@pytest.mark.parametrize("words", ["", "step3"])
def test_an_order_is_over_all_that_match_equal_ones_newest_first(two_runs, key, is_descending, words):
    where = TrajectoryFacets("first", words)
    name = {"question": "question_index", "entropy": "mean_entropy", "step": "step", "reward": "reward"}.get(key)
    every = trajectory_list.list_snippets(two_runs, where, limit=1_000)
    sign = -1 if is_descending else 1
    # None of them has turns.
    expected = ids(sorted(every, key=lambda row: sign * (getattr(row, name or f"num_{key}") or 0)))
    order = TrajectoryOrder(key, is_descending)
    assert ids(trajectory_list.list_snippets(two_runs, where, limit=1_000, order=order)) == expected
    assert ids(trajectory_list.list_snippets(two_runs, where, limit=5, order=order)) == expected[:5]


@pytest.mark.parametrize("is_descending", [False, True])
def test_unknown_values_are_last_in_either_order(database, tmp_path, is_descending):
    run, table = new_run(tmp_path), models.trajectories
    record_attempt(run, range(1, 3))
    ingest_run(database, run)
    change = update(table).where(table.c.step == 1).values(mean_entropy=None)
    database.write(lambda connection: connection.execute(change))
    order = TrajectoryOrder(TrajectorySortKey.ENTROPY, is_descending)
    values = [row.mean_entropy for row in trajectory_list.list_snippets(database, TrajectoryFacets(), order=order)]
    known = [value for value in values if not math.isnan(value)]
    assert values[: len(known)] == sorted(known, reverse=is_descending)
    assert 0 < len(known) < len(values)


def test_counts_are_exact_with_words_too(two_runs):
    num_all = len(newest_first("first", "second"))
    assert trajectory_list.count_trajectories(two_runs, TrajectoryFacets()) == num_all > 11
    assert sum(trajectory_list.count_facets(two_runs, TrajectoryFacets())["is_correct"].values()) == num_all
    assert trajectory_list.count_trajectories(two_runs, TrajectoryFacets(words="trajectory")) == num_all


def test_snippet_is_one_line_around_the_first_word_found():
    text = "begin " + "filler\n" * 100 + "needle end"
    assert trajectory_list.snippet_of(text, "").startswith("begin filler filler")
    assert trajectory_list.snippet_of(text, "").endswith("…")
    assert trajectory_list.snippet_of(text, "NEEDLE").endswith("needle end")
    assert trajectory_list.snippet_of("short", "nothing") == "short"


def test_a_run_with_external_replays_is_taken_in_and_they_replay_no_trajectory_of_its_own(database, tmp_path):
    external = Step({1: [Response()], 2: [Response()]}, replayed={1: (-2, 0), 2: (0, 1)})
    ingest_run(database, record_steps(tmp_path, [Step({1: [Response(), Response()]}), external]))
    of_run = TrajectoryFacets(run_id="trained")
    replayed = trajectory_list.list_snippets(database, TrajectoryFacets(run_id="trained", is_replayed=True))
    assert [row.trajectory_id for row in replayed] == [0]
    assert trajectory_list.count_trajectories(database, of_run) == 4
    questions = {row.question_index: row for row in trajectory_list.list_questions(database, of_run)}
    replays = {index: (row.num_replays, row.last_replayed_step) for index, row in questions.items()}
    assert replays == {1: (0, None), 2: (1, 2)}
    assert [(row.trajectory_id, row.num_replays) for row in lineage.most_replayed(database, "trained")] == [(0, 1)]
    assert [point.num_replays for point in replay_concentration.replay_concentration(database, "trained")] == [1]
    assert "is_replayed" in trajectory_list.list_known(database, "trained")


def test_a_run_that_replays_trajectories_of_a_file_only_has_no_replays_of_its_own(database, tmp_path):
    ingest_run(database, record_steps(tmp_path, [Step({1: [Response()]}, replayed={1: (-2, 0)})]))
    assert not trajectory_list.has_replays(database, "trained")
    assert "is_replayed" not in trajectory_list.list_known(database, "trained")


def test_postgresql_looks_each_trajectorys_replays_up_by_its_number(new_database, tmp_path):
    database, replays, seen = new_database("postgresql", tmp_path), models.replays, []
    ingest_run(
        database, record_steps(tmp_path, [Step({1: [Response()]}), Step({1: [Response()]}, replayed={1: (0, 1)})])
    )
    copied = select(
        *(func.generate_series(10, 5000) if item.name in {"step", "trajectory_id"} else item for item in replays.c)
    )
    with database.engine.begin() as connection:
        connection.execute(insert(replays).from_select(list(replays.c), copied))
        connection.exec_driver_sql("ANALYZE")
    event.listen(database.engine, "before_cursor_execute", lambda *given: seen.append(given[2:4]))
    trajectory_list.count_facets(database, TrajectoryFacets())
    (query,) = (item for item in seen if "replays" in item[0])
    with database.engine.connect() as connection:
        connection.exec_driver_sql("SET work_mem = '64kB'")  # as if there were too many replays to hash
        plan = "\n".join(connection.exec_driver_sql(f"EXPLAIN {query[0]}", query[1]).scalars())
    database.close()
    assert "Seq Scan on replays" not in plan
    assert "trajectory_id = trajectories.trajectory_id" in plan


def test_page_of_a_runs_newest_is_read_without_sorting_the_run(two_runs):
    statements = []
    event.listen(two_runs.engine, "before_cursor_execute", lambda *given: statements.append(given[2:4]))
    trajectory_list.list_snippets(two_runs, TrajectoryFacets(run_id="first", entropy_from=0.0), limit=2)
    [(statement, values)] = [said for said in statements if "ORDER BY" in said[0]]
    if two_runs.is_sqlite:
        with two_runs.read() as connection:
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values).all()
        assert [step.detail for step in plan] == ["SEARCH trajectories USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"]
