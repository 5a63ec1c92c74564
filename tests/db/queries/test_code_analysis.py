import pytest

from exgrpo.db.queries.code_analysis import Spreading, code_lines, entropy_points, share_timeline
from tests.db.conftest import on_sqlite
from tests.db.queries.test_judging import ingest_job, job_of_votes
from tests.db.recorded_chains import Response, Step, record_steps
from tests.db.recorded_runs import ingest_run

pytestmark = on_sqlite

WRONG = Response(is_correct=False, entropy=9.0, is_valid=False)
PLAIN = Response(is_valid=True)
CODE = Response(has_code=True, is_valid=False)
WRONG_REWARD = Response(is_correct=False)
STEPS = [
    Step({0: [CODE, Response(is_correct=False)]}, inserted=[(0, 0)]),
    Step({1: [PLAIN, CODE], 0: [WRONG_REWARD]}, inserted=[(1, 2), (1, 3)], replayed={0: (0, 1)}),
    Step({2: [WRONG_REWARD]}, retired=[1]),
    Step({2: [WRONG_REWARD]}, retired=[0]),
    Step({1: [PLAIN]}, inserted=[(1, 7)]),
]


def test_a_judges_verdicts_take_the_oracles_place(database, tmp_path):
    group = [Response(is_valid=True), Response(is_valid=True), Response(is_valid=True), WRONG]
    ingest_run(database, record_steps(tmp_path, [Step({0: group})]))
    ingest_job(database, job_of_votes(tmp_path, [("1/0", 0, "invalid", None), ("1/1", 1, "valid", None)]))
    line = {(line.group, line.has_code): line for line in code_lines(database, "trained", "voted")}["medium", False]
    assert (line.num_trajectories, line.num_judged, line.cot_correctness) == (3, 2, 0.5)
    assert (line.num_by_judge, line.num_valid_by_judge) == (2, 1)
    assert [point.is_valid for point in entropy_points(database, "trained", "voted").points] == [False, True, None]


def test_a_long_run_gives_an_even_part_of_its_points(database, tmp_path):
    steps = [Step({0: [Response(entropy=0.1 * step)] * 4}) for step in range(5)]
    ingest_run(database, record_steps(tmp_path, steps))
    whole = entropy_points(database, "trained")
    assert (whole.stride, len(whole.points)) == (1, 20)
    part = entropy_points(database, "trained", max_points=5)
    assert (part.stride, len(part.points)) == (4, 5)
    assert [point.mean_entropy for point in part.points] == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4])


def test_what_was_evicted_leaves_the_buffers_share_by_itself_also_in_a_branch(database, tmp_path):
    parent = [
        Step({0: [CODE, PLAIN, CODE]}, inserted=[(0, 0), (0, 1), (0, 2)]),
        Step({1: [PLAIN]}, inserted=[(1, 3)], evicted=[(0, 0)]),
        Step({1: [WRONG_REWARD]}, evicted=[(0, 1), (0, 2), (1, 3)]),
        Step({2: [CODE]}, inserted=[(2, 5)]),
    ]
    ingest_run(database, record_steps(tmp_path, parent))
    assert [line.buffer for line in share_timeline(database, "trained", Spreading.CODE)] == [2 / 3, 1 / 3, None, 1.0]
    own = [Step({3: [WRONG_REWARD]}, evicted=[(0, 1)]), Step({3: [WRONG_REWARD]}, retired=[0])]
    branch = record_steps(tmp_path, own, "branched", first_step=3, parent_run_id="trained", branched_from_step=2)
    ingest_run(database, branch)
    assert [line.buffer for line in share_timeline(database, "branched", Spreading.CODE)] == [0.5, 0.0]


def test_a_branch_begins_with_its_parents_buffer(database, tmp_path):
    ingest_run(database, record_steps(tmp_path, STEPS))
    # The branch's ids go on from where it branched off, so they are also those of later steps of its parent.
    steps = [
        Step({3: [WRONG_REWARD] * 4 + [PLAIN]}, inserted=[(3, 4)], replayed={3: (0, 1)}),
        Step({3: [WRONG_REWARD]}, retired=[1]),
    ]
    branch = record_steps(tmp_path, steps, "branched", first_step=3, parent_run_id="trained", branched_from_step=2)
    ingest_run(database, branch)
    lines = share_timeline(database, "branched", Spreading.CODE)
    assert [line.step for line in lines] == [3, 4]
    # After step 2 the parent held two with code of three; the branch adds one without, and retires question 1.
    assert [line.buffer for line in lines] == [0.5, 0.5]
    assert lines[0].replays == 1.0
