"""What a loop recorded, in the database: on SQLite and on PostgreSQL, in one read or in many parts."""

import math

import pytest

from db.connections.opening import reset
from db.ingest import events
from db.queries import metrics, runs, trajectories, trajectory_list
from db.rows.trajectories import TrajectoryFacets
from exgrpo_core import recording
from jobs.recording import event_reader
from jobs.recording.event_reader import EventReader
from jobs.runs.directory import RunDirectory
from jobs.runs.state import describe_run
from tests.db.table_contents import contents

GROUP = [{"prompt": "1 + 1?", "response": str(n), "reward": float(n == 2), "num_tokens": n + 1} for n in range(4)]


def ingest(database, run):
    folder = RunDirectory(run.path)
    description = describe_run(folder)
    events.register_run(database, description.info, description.spec)
    reader, position, has_more = EventReader(folder), None, True
    while has_more:
        batch = reader.read(position)
        events.ingest_events(database, run.run_id, batch.events, batch.position, batch.faults)
        position, has_more = batch.position, batch.has_more
    return reader, position


def rows(database, run, **facets):
    return trajectory_list.list_snippets(database, TrajectoryFacets(run_id=run.run_id, **facets))[::-1]


def values(database, run, name):
    return [tuple(point) for point in metrics.metric_series(database, run.run_id, [name])[name]]


@pytest.fixture
def run(tmp_path):
    run = recording.start("recorded", {"lr": 1e-6}, tmp_path)
    yield run
    run.finish()


def test_trajectories_groups_curves_and_columns_are_those_that_were_recorded(database, run):
    for step in (1, 2):
        run.log(step, {"loss": 0.5 / step, "a new/curve": 1}, trajectories=[*GROUP, {"response": "alone", "tool": "x"}])
    ingest(database, run)
    row = runs.get_run(database, run.run_id)
    assert (row.kind, row.method, row.step, row.last_pass_at_1) == ("train", "unknown", 2, 0.25)
    assert values(database, run, "loss") == [(1, 0.5), (2, 0.25)]
    assert values(database, run, "a new/curve") == [(1, 1.0), (2, 1.0)]
    assert values(database, run, "reward/mean") == [(1, 0.25), (2, 0.25)]
    assert values(database, run, "response/max_tokens") == [(1, 4.0), (2, 4.0)]
    found = rows(database, run)
    assert [row.reward for row in found[:4]] == [0.0, 0.0, 1.0, 0.0]
    assert {row.question_index for row in found} == {0, 1}
    alone = trajectories.get_trajectory(database, run.run_id, found[4].trajectory_id)
    assert (alone.extra, alone.text) == ({"tool": "x"}, "alone")
    assert len(rows(database, run, is_correct=True)) == 2


def test_facts_that_were_not_recorded_stay_unknown(database, run):
    run.log(1, trajectories=["text"])
    ingest(database, run)
    (row,) = rows(database, run)
    assert (row.verdict, row.is_truncated, row.num_tokens) == ("", None, None)
    assert math.isnan(row.reward)
    assert math.isnan(row.mean_entropy)
    for facets in ({"is_correct": True}, {"is_correct": False}, {"tokens_to": 10}, {"entropy_to": 1.0}):
        assert rows(database, run, **facets) == []
    assert runs.get_run(database, run.run_id).last_pass_at_1 is None
    assert values(database, run, "reward/mean") == []


def test_a_step_in_parts_is_the_same_as_in_one(database, run, monkeypatch):
    for number in range(12):
        run.log(number // 6, {f"m{number}": 1.0}, trajectories=[GROUP[number % 4] | {"group": f"g{number % 2}"}])
    ingest(database, run)
    whole = {name: rows for name, rows in contents(database).items() if name != "trajectory_blocks"}
    facets = trajectory_list.count_facets(database, TrajectoryFacets(run_id=run.run_id))
    events_before = len(contents(database)["ingested_events"])
    reset(database)
    monkeypatch.setattr(event_reader, "MAX_BYTES", 1)
    ingest(database, run)
    assert {name: rows for name, rows in contents(database).items() if name != "trajectory_blocks"} == whole
    assert trajectory_list.count_facets(database, TrajectoryFacets(run_id=run.run_id)) == facets
    assert len(contents(database)["ingested_events"]) == events_before


def test_what_the_loop_records_itself_is_not_computed(database, run):
    run.log(1, {}, trajectories=GROUP)
    reader, position = ingest(database, run)
    assert values(database, run, "reward/mean") == [(1, 0.25)]
    run.log(1, {"reward/mean": 0.75})
    run.log(1, {}, trajectories=GROUP)
    batch = reader.read(position)
    events.ingest_events(database, run.run_id, batch.events, batch.position)
    assert values(database, run, "reward/mean") == [(1, 0.75)]
    assert values(database, run, "reward/pass_at_1") == [(1, 0.25)]


def test_an_annotation_is_folded_in(database, run):
    ids = run.log(1, {}, trajectories=GROUP)
    reader, position = ingest(database, run)
    assert len(rows(database, run, is_correct=True)) == 1
    run.annotate(1, ids[0], reward=1.0, verdict="correct", is_valid=False, judge="strict", mark="odd", comment="why")
    run.annotate(1, "unknown", reward=1.0)
    batch = reader.read(position)
    events.ingest_events(database, run.run_id, batch.events, batch.position)
    assert len(rows(database, run, is_correct=True)) == 2
    first = trajectories.get_trajectory(database, run.run_id, rows(database, run)[0].trajectory_id)
    assert (first.reward, first.verdict, first.is_valid, first.extra) == (1.0, "correct", False, {"judge": "strict"})
    assert rows(database, run, verdict="correct")[0].trajectory_id == first.trajectory_id
    assert values(database, run, "reward/mean") == [(1, 0.5)]
    run.annotate(1, ids[0], reward=3.0)
    batch = reader.read(batch.position)
    events.ingest_events(database, run.run_id, batch.events, batch.position)
    assert (values(database, run, "reward/mean"), values(database, run, "reward/pass_at_1")) == ([(1, 1.0)], [])
    assert [mark.comment for mark in trajectories.marks_of(database, run.run_id, 1, first.trajectory_id)] == ["why"]


def test_an_attempt_that_begins_again_supersedes_what_came_after_its_first_step(database, run):
    for step in (1, 2, 3):
        run.log(step, {"loss": float(step)}, trajectories=["old"])
    run.finish()
    again = recording.start("recorded", None, run.path.parent, run_id=run.run_id)
    again.log(2, {"loss": 20.0}, trajectories=["new"])
    again.finish()
    ingest(database, again)
    assert values(database, run, "loss") == [(1, 1.0), (2, 20.0)]
    assert [row.snippet for row in rows(database, run)] == ["old", "new"]


def test_ranks_are_one_run_with_numbers_of_their_own(database, tmp_path):
    ranks = [recording.start("ranks", None, tmp_path, run_id="job", rank=rank, num_ranks=2) for rank in range(2)]
    for rank, run in enumerate(ranks):
        run.log(1, {"loss": float(rank)}, trajectories=[GROUP[rank], GROUP[2]])
    ingest(database, ranks[0])
    found = rows(database, ranks[0])
    assert [row.trajectory_id for row in found] == [2, 3, 4, 5]
    assert {row.question_index for row in found} == {0}
    assert values(database, ranks[0], "loss") == [(1, 0.0)]
    assert values(database, ranks[0], "loss (rank 1)") == [(1, 1.0)]
    for run in ranks:
        run.finish()


def test_damage_and_losses_are_faults_and_the_other_lines_are_shown(database, run):
    run.log(1, trajectories=["one", 5, "two"])
    run.log(2, trajectories=["three"])
    path = next(run.path.rglob("rollouts-*.jsonl"))
    content = path.read_bytes().replace(b"two", b"2")
    path.write_bytes(content + b'{"kind":"trajectory","step":-1,"at":"x","messages":[]}\n' + b'{"half a line')
    ingest(database, run)
    assert [row.snippet for row in rows(database, run)] == ["one", "three"]
    assert len(runs.get_run(database, run.run_id).faults) == 3
