import pytest

from exgrpo.db.queries import lineage
from exgrpo_core.recording.run_status import RunStatus
from exgrpo_core.step_report import BufferEvent, BufferEventKind
from tests.db.recorded_runs import ingest_run, new_run, record_attempt

STORED, QUESTION = 0, 4
"""The first trajectory of the first step, and its question."""


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


def test_of_a_long_text_a_group_has_the_beginning(recorded_run, monkeypatch):
    database, run_id = recorded_run
    whole = lineage.group_members(database, run_id, 5, QUESTION)
    monkeypatch.setattr(lineage, "MAX_CHARACTERS", 10)
    begun = lineage.group_members(database, run_id, 5, QUESTION)
    assert [member.text for member in begun] == [member.text[:10] for member in whole]
    assert [member.num_characters for member in begun] == [len(member.text) for member in whole]
