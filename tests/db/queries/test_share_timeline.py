import pytest

from db.queries.share_timeline import Spreading, share_timeline
from tests.db.recorded_chains import Response, Step, record_steps
from tests.db.recorded_runs import ingest_run

PLAIN = Response(is_valid=True)
CODE = Response(has_code=True, is_valid=False)
WRONG = Response(is_correct=False)

STEPS = [
    Step({0: [CODE, Response(is_correct=False)]}, inserted=[(0, 0)]),
    Step({1: [PLAIN, CODE], 0: [WRONG]}, inserted=[(1, 2), (1, 3)], replayed={0: (0, 1)}),
    Step({2: [WRONG]}, retired=[1]),
    Step({2: [WRONG]}, retired=[0]),
    Step({1: [PLAIN]}, inserted=[(1, 7)]),
]


def test_shares_follow_rollouts_successes_buffer_and_replays(database, tmp_path):
    ingest_run(database, record_steps(tmp_path, STEPS))
    lines = share_timeline(database, "trained", Spreading.CODE)
    assert [line.step for line in lines] == [1, 2, 3, 4, 5]
    assert [line.rollouts for line in lines] == [0.5, pytest.approx(1 / 3), 0.0, 0.0, 0.0]
    assert [line.successes for line in lines] == [1.0, 0.5, None, None, 0.0]
    assert [line.buffer for line in lines] == [1.0, pytest.approx(2 / 3), 1.0, None, 0.0]
    assert [line.replays for line in lines] == [None, 1.0, None, None, None]


def test_invalid_chains_are_shares_of_those_with_a_verdict(database, tmp_path):
    ingest_run(database, record_steps(tmp_path, STEPS))
    lines = share_timeline(database, "trained", Spreading.INVALID)
    assert [line.rollouts for line in lines] == [1.0, 0.5, None, None, 0.0]
    assert [line.replays for line in lines] == [None, 1.0, None, None, None]


def test_a_branch_begins_with_its_parents_buffer(database, tmp_path):
    ingest_run(database, record_steps(tmp_path, STEPS))
    # The branch's ids go on from where it branched off, so they are also those of later steps of its parent.
    steps = [
        Step({3: [WRONG] * 4 + [PLAIN]}, inserted=[(3, 4)], replayed={3: (0, 1)}),
        Step({3: [WRONG]}, retired=[1]),
    ]
    branch = record_steps(tmp_path, steps, "branched", first_step=3, parent_run_id="trained", branched_from_step=2)
    ingest_run(database, branch)
    lines = share_timeline(database, "branched", Spreading.CODE)
    assert [line.step for line in lines] == [3, 4]
    # After step 2 the parent held two with code of three; the branch adds one without, and retires question 1.
    assert [line.buffer for line in lines] == [0.5, 0.5]
    assert lines[0].replays == 1.0
