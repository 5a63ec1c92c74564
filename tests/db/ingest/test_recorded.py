"""What a loop recorded, in the database: on SQLite and on PostgreSQL, in one read or in many parts."""

import gzip
import math
import time

import numpy as np
import pytest

from exgrpo.db.connections.opening import reset
from exgrpo.db.ingest import events
from exgrpo.db.queries import lineage, metrics, runs, trajectories, trajectory_list
from exgrpo.db.rows.trajectories import TrajectoryFacets
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.recording import event_reader
from exgrpo.jobs.runs.recording.event_reader import EventReader
from exgrpo.jobs.runs.state import describe_run
from exgrpo_core import recording
from exgrpo_core.recording.record_file import pack, read_members
from exgrpo_core.recording.rows import Message, RecordedTrajectory
from tests.db.conftest import on_sqlite
from tests.db.table_contents import contents

GROUP = [{"prompt": "1 + 1?", "response": str(n), "reward": float(n == 2), "num_tokens": n + 1} for n in range(4)]


def ingest(database, run):
    folder = RunDirectory(run.path)
    description = describe_run(folder)
    events.register_run(database, description.info, description.spec)
    reader = EventReader(folder)
    for batch in reader.batches():
        events.ingest_events(database, run.run_id, batch.events, batch.position, batch.faults)
    return reader, batch.position


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


def test_rewards_of_any_size_are_bounded_and_unknown_ones_fit_no_bound(database, run):
    run.log(1, trajectories=[{"response": "a", "reward": reward} for reward in (-1.0, -0.25, 0.7, None, math.nan)])
    ingest(database, run)
    for bounds, found in (((None, 0.0), [-1.0, -0.25]), ((-0.5, None), [-0.25, 0.7]), ((0.7, 0.7), [0.7])):
        fitting = rows(database, run, reward_from=bounds[0], reward_to=bounds[1])
        assert [row.reward for row in fitting] == found


def test_a_reward_on_another_scale_says_that_no_step_of_the_run_has_a_pass_rate(database, run):
    for step, rewards in enumerate([(0.0, 1.0), (0.2, 1.0), (0.0, 1.0)], start=1):
        parts = [{"accuracy": reward // 1, "format": reward % 1} for reward in rewards]
        run.log(
            step,
            trajectories=[
                {"response": "a", "reward": sum(part.values()), "rewards": part, "verdict": None} for part in parts
            ],
        )
    ingest(database, run)
    assert values(database, run, "reward/pass_at_1") == []
    assert runs.get_run(database, run.run_id).last_pass_at_1 is None
    assert [value for _, value in values(database, run, "reward/mean")] == pytest.approx([0.5, 0.6, 0.5])
    assert values(database, run, "reward/accuracy") == [(1, 0.5), (2, 0.5), (3, 0.5)]
    assert [value for _, value in values(database, run, "reward/format")] == pytest.approx([0.0, 0.1, 0.0])


def test_a_step_in_parts_is_the_same_as_in_one(database, run, monkeypatch):
    for number in range(12):
        run.log(number // 6, {f"m{number}": 1.0}, trajectories=[GROUP[number % 4] | {"group": f"g{number % 2}"}])
    ingest(database, run)
    whole = contents(database)
    facets = trajectory_list.count_facets(database, TrajectoryFacets(run_id=run.run_id))
    events_before = len(contents(database)["ingested_events"])
    reset(database)
    monkeypatch.setattr(event_reader, "MAX_BYTES", 1)
    ingest(database, run)
    assert contents(database) == whole
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


def test_settings_that_change_after_the_start_are_those_of_the_run(database, run):
    run.config.warmup = 10
    reader, position = ingest(database, run)
    assert runs.run_spec(database, run.run_id)["config"] == {"lr": 1e-6, "warmup": 10}
    run.config.update({"lr": 2e-6})
    batch = reader.read(position)
    events.ingest_events(database, run.run_id, batch.events, batch.position)
    assert runs.run_spec(database, run.run_id)["config"] == {"lr": 2e-6, "warmup": 10}


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
    run.annotate(1, ids[1], reward=2.0)
    batch = reader.read(batch.position)
    events.ingest_events(database, run.run_id, batch.events, batch.position)
    assert (values(database, run, "reward/mean"), values(database, run, "reward/pass_at_1")) == ([(1, 1.0)], [])
    assert len(runs.get_run(database, run.run_id).left_out) == 1
    for facts in ({"is_valid": np.bool_(True)}, {"reward": float("nan")}, {"advantage": np.float32(0.5)}):
        run.annotate(np.int64(7), ids[0], **facts)
    batch = reader.read(batch.position)
    events.ingest_events(database, run.run_id, batch.events, batch.position, batch.faults)
    again = trajectories.get_trajectory(database, run.run_id, first.trajectory_id)
    assert (again.is_valid, math.isnan(again.reward), again.advantage) == (True, True, 0.5)
    assert len(runs.get_run(database, run.run_id).left_out) == 1
    assert [mark.comment for mark in trajectories.marks_of(database, run.run_id, 1, first.trajectory_id)] == ["why"]


def test_a_rank_annotates_what_others_recorded(database, tmp_path, monkeypatch):
    monkeypatch.setattr(event_reader, "MAX_BYTES", 2_000)
    runs_of_ranks = [
        recording.start("ranks", {}, tmp_path, run_id="ranks", rank=rank, num_ranks=3) for rank in range(3)
    ]
    with next(tmp_path.rglob("record-0000-*")).open("ab") as file:
        file.write(pack([b'{"a":"line without a time"}\n']))
    for step in range(1, 6):
        for run in runs_of_ranks:
            ids = run.log(step, trajectories=GROUP)
            time.sleep(0.002)  # times in a file are milliseconds
            for trajectory_id in ids:
                runs_of_ranks[step % 3].annotate(step, trajectory_id, verdict="correct")
    ingest(database, runs_of_ranks[0])
    assert {row.verdict for row in rows(database, runs_of_ranks[0])} == {"correct"}
    assert runs.get_run(database, "ranks").left_out == ()
    for run in runs_of_ranks:
        run.finish()


@pytest.mark.parametrize(
    ("reward", "verdict", "is_correct"),
    [
        (31.2, None, None), (-1.0, None, False), (2.0, "wrong", False), (None, "correct", True), (1.0, "pass", True),
    ],
)  # fmt: skip
@on_sqlite
def test_what_is_correct_is_said_by_the_verdict_else_by_a_reward_that_is_an_outcome(
    database, run, reward, verdict, is_correct
):
    ids = run.log(1, trajectories=[{"prompt": "q", "response": "a", "reward": reward, "verdict": verdict}])
    reader, position = ingest(database, run)
    for annotates in (False, True):
        if annotates:
            run.annotate(1, ids[0], judge="none")
            batch = reader.read(position)
            events.ingest_events(database, run.run_id, batch.events, batch.position)
        found = {said: len(rows(database, run, is_correct=said)) for said in (True, False)}
        assert found == {True: is_correct is True, False: is_correct is False}
        (member,) = lineage.group_members(database, run.run_id, 1, 0)
        assert member.is_correct == is_correct
        expected = [] if is_correct is None else [(1, float(is_correct))]
        assert values(database, run, "reward/pass_at_1") == expected
        attempts = lineage.attempts_at_question(
            database, trajectories.get_trajectory(database, run.run_id, 0).question_id
        )
        assert [(row.num_correct, row.num_rollouts) for row in attempts] == [(int(rate), 1) for _, rate in expected]


def test_groups_of_one_question_are_apart(database, run):
    named = [{"prompt": "q", "response": str(n), "reward": float(n), "group": f"g{n % 2}"} for n in (0, 1, 0, 1)]
    run.log(1, trajectories=named)
    ingest(database, run)
    first = trajectories.get_trajectory(database, run.run_id, 0)
    members = lineage.group_members(database, run.run_id, 1, 0, first.group_position)
    assert [member.trajectory_id for member in members] == [0, 2]
    attempts = lineage.attempts_at_question(database, first.question_id)
    assert sorted((row.num_correct, row.num_rollouts) for row in attempts) == [(0, 2), (2, 2)]


@pytest.mark.parametrize("first", [0, 1])
def test_an_attempt_that_begins_again_replaces_what_came_after_its_first_step(database, run, first):
    for step in (first - 1, first, first + 1):
        run.log(step, {"loss": float(step)}, trajectories=["old"])
    run.finish()
    again = recording.start("recorded", None, run.path.parent, run_id=run.run_id)
    again.log(first, {"loss": 20.0}, trajectories=["new"])
    again.finish()
    ingest(database, again)
    assert values(database, run, "loss") == [*([(0, 0.0)] if first else []), (first, 20.0)]
    assert [row.text for row in rows(database, run)] == [*(["old"] if first else []), "new"]


def test_repeated_steps_take_their_marks_and_their_scale_of_rewards_with_them(database, run):
    run.log(1, trajectories=[{"prompt": "q", "response": "right", "reward": 1.0}])
    ids = run.log(2, trajectories=[{"prompt": "q", "response": "half", "reward": 0.5}])
    run.annotate(2, ids[0], mark="odd")
    run.finish()
    ingest(database, run)
    assert values(database, run, "reward/pass_at_1") == []
    assert [row.mark for row in trajectories.list_marks(database)] == ["odd"]
    again = recording.start("recorded", None, run.path.parent, run_id=run.run_id)
    again.log(2, trajectories=[{"prompt": "q", "response": "wrong", "reward": 0.0}])
    again.finish()
    ingest(database, again)
    assert values(database, run, "reward/pass_at_1") == [(1, 1.0), (2, 0.0)]
    assert trajectories.list_marks(database) == []
    before = contents(database)
    reset(database)
    ingest(database, run)
    assert contents(database) == before


def test_questions_of_steps_that_were_repeated_keep_their_numbers(database, run):
    for question in "ABCD":
        run.log(1 + "ABCD".index(question) // 2, trajectories=[{"prompt": question, "response": "old"}])
    run.finish()
    again = recording.start("recorded", None, run.path.parent, run_id=run.run_id)
    for step, question in ((1, "E"), (2, "C")):
        again.log(step, trajectories=[{"prompt": question, "response": "new"}])
    reader, position = ingest(database, again)
    again.log(3, trajectories=[{"prompt": "F", "response": "new"}])
    again.finish()
    batch = reader.read(position)
    events.ingest_events(database, run.run_id, batch.events, batch.position)
    found = [(row.prompt, row.question_index) for row in rows(database, run)]
    assert found == [("E", 4), ("C", 2), ("F", 5)]
    before = contents(database)
    reset(database)
    ingest(database, run)
    assert contents(database) == before


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


@pytest.mark.parametrize(
    ("given", "changed"),
    [
        (b'"num_tokens":7', b'"num_tokens":1000000000000'), (b'"num_tokens":7', b'"num_tokens":' + b"9" * 400),
        (b'"num_tokens":7', b'"num_tokens":"many"'), (b'"num_tokens":7', b'"num_tokens":[1]'),
        (b'"reward":0.5', b'"reward":1' + b"0" * 400), (b'"at":"', b'"at":"0001-01-01T00:00:00+14:00","was":"'),
        (b'"role":"user"', b'"role":"user","mean_entropy":[1]'), (b'"is_truncated":true', b'"is_truncated":"yes"'),
    ],
)  # fmt: skip
@on_sqlite
def test_a_line_out_of_range_is_damaged_and_the_others_are_shown(database, run, given, changed):
    turn = Message("assistant", "odd", is_generated=True, num_tokens=7)
    odd = RecordedTrajectory((Message("user", "q"), turn), 0.5, is_truncated=True)
    run.log(1, trajectories=["one", odd, "two"])
    path = next(run.path.rglob("record-*"))
    first, line, last = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    line = line.replace(given, changed)
    assert changed in line
    path.write_bytes(pack([first, line, last]))
    ingest(database, run)
    assert [row.text for row in rows(database, run)] == ["one", "two"]
    assert len(runs.get_run(database, run.run_id).faults) == 1


def test_texts_that_do_not_fit_are_stored_as_far_as_they_do(database, run):
    given = {"prompt": "q", "response": "a\0", "question_id": "q\0", "verdict": "v\0", "answer": "\0"}
    ids = run.log(1, trajectories=[given])
    run.annotate(1, ids[0], verdict="much longer than it can be")
    ingest(database, run)
    (row,) = rows(database, run)
    assert row.verdict == "much longer than"
    assert lineage.attempts_at_question(database, "q\ufffd") == []


@on_sqlite
def test_damage_and_losses_are_faults_and_the_other_lines_are_shown(database, run):
    run.log(1, trajectories=["one", 5, "two"])
    run.log(2, trajectories=["three"])
    run.log(3, trajectories=["four"])
    path = next(run.path.rglob("record-*"))
    content = bytearray(path.read_bytes())
    content[[*read_members(path)][1].end - 8] ^= 1  # of the second step
    wrong = pack([b'{"kind":"trajectory","step":-1,"at":"x","messages":[]}\n'])
    path.write_bytes(content + wrong + wrong[:-3])
    ingest(database, run)
    assert [row.text for row in rows(database, run)] == ["one", "two", "four"]
    row = runs.get_run(database, run.run_id)
    assert (len(row.faults), len(row.left_out), row.health) == (2, 1, ("damaged", "not_recorded"))
