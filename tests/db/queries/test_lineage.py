from dataclasses import replace

import pytest

from exgrpo.db.queries import lineage
from exgrpo_core.recording.run_status import RunStatus
from exgrpo_core.step_report import BufferEvent, BufferEventKind
from tests.db.conftest import KINDS
from tests.db.recorded_runs import ingest_run, new_run, record_attempt
from tests.step_reports import make_questions, make_report

STORED, QUESTION = 0, 4
"""The first trajectory of the first step, and its question."""


def tell_a_story(report):
    """Store a trajectory in step 1, score it in 3, replay it in 5, and retire its question in 7."""
    kind = BufferEventKind
    events_of_step = {
        1: [(kind.MOVED, None, None, 2), (kind.INSERTED, STORED, 2, 2)],
        5: [(kind.REPLAYED, STORED, 2, 2), (kind.MOVED, None, 2, 5)],
        7: [(kind.RETIRED, None, 5, None)],
    }
    report.buffer_events = [BufferEvent(k, QUESTION, t, a, b) for k, t, a, b in events_of_step.get(report.step, [])]
    chosen = {3: 1, 5: 0}.get(report.step)
    if chosen is not None:
        selection = report.selections[0]
        selection.trajectory_ids[:] = [STORED, 17]
        object.__setattr__(selection, "question_index", QUESTION)
        object.__setattr__(selection, "chosen", (chosen,))
    if report.step == 5:
        group = next(group for group in report.groups if group.replays)
        group.question = make_questions()[QUESTION]
        stored = group.replays[0].experience._replace(trajectory_id=STORED, question_index=QUESTION, rollout_step=1)
        group.replays = (replace(group.replays[0], experience=stored),)


@pytest.fixture(scope="module", params=KINDS)
def replayed_run(request, new_database, tmp_path_factory):
    folder = tmp_path_factory.mktemp("told")
    database, run = new_database(request.param, folder), new_run(folder)
    record_attempt(run, range(1, 9), end=RunStatus.FINISHED, change=tell_a_story)
    ingest_run(database, run)
    yield database, run.run_id
    database.close()


def evict(report):
    kind = BufferEventKind
    events_of_step = {
        1: [(kind.MOVED, None, None, 2), (kind.INSERTED, STORED, 2, 2)],
        2: [(kind.INSERTED, 20, 2, 2), (kind.INSERTED, 21, 2, 2)], 3: [(kind.EVICTED, STORED, 2, 2)],
        4: [(kind.EVICTED, 20, 2, 2)], 5: [(kind.EVICTED, 21, 2, None)],
    }  # fmt: skip
    report.buffer_events = [BufferEvent(k, QUESTION, t, a, b) for k, t, a, b in events_of_step.get(report.step, [])]


@pytest.mark.parametrize(
    ("trajectory_id", "story"),
    [
        (STORED, [(1, "moved", 2), (1, "inserted", 2), (3, "evicted", 2), (5, "emptied", None)]),
        (21, [(1, "moved", 2), (2, "inserted", 2), (5, "evicted", None)]),
    ],
)
def test_a_lineage_tells_that_the_trajectory_and_its_question_leave_by_a_limit(
    database, tmp_path, trajectory_id, story
):
    run = new_run(tmp_path)
    record_attempt(run, range(1, 7), end=RunStatus.FINISHED, change=evict)
    ingest_run(database, run)
    rows = lineage.lineage(database, run.run_id, trajectory_id, QUESTION, 1)
    assert [(row.step, row.kind, row.bucket_to) for row in rows if row.kind not in {"scored", "replayed"}] == story


def test_lineage_tells_birth_moves_scores_replays_and_retirement_in_order(replayed_run):
    database, run_id = replayed_run
    rows = lineage.lineage(database, run_id, STORED, QUESTION, 1)
    assert [(row.step, row.kind) for row in rows] == [
        (1, "moved"), (1, "inserted"), (3, "scored"), (5, "replayed"), (5, "moved"), (7, "retired"),
    ]  # fmt: skip
    replay = rows[3]
    expected = next(g for g in make_report(5).groups if g.replays)
    assert replay.entropy == pytest.approx(float(expected.replays[0].entropies.mean()))
    assert replay.nll == pytest.approx(-float(expected.replays[0].old_log_probs.mean()))
    assert replay.num_candidates == 2
    assert "record-0000-of-0001.jsonl.gz@" in replay.file
    assert (rows[4].bucket_from, rows[4].bucket_to) == (2, 5)
    # What happened before its rollout is not told.
    assert {row.step for row in lineage.lineage(database, run_id, STORED, QUESTION, 6)} == {3, 5, 7}


def test_of_a_long_text_a_group_has_the_beginning(replayed_run, monkeypatch):
    database, run_id = replayed_run
    whole = lineage.group_members(database, run_id, 5, QUESTION)
    monkeypatch.setattr(lineage, "MAX_CHARACTERS", 10)
    begun = lineage.group_members(database, run_id, 5, QUESTION)
    assert [member.text for member in begun] == [member.text[:10] for member in whole]
    assert [member.num_characters for member in begun] == [len(member.text) for member in whole]
