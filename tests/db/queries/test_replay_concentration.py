from collections import Counter

import numpy as np
import pytest

from db.queries.replay_concentration import answer_diversity, replay_concentration
from exgrpo_core.step_report import BufferEvent, BufferEventKind
from tests.db.recorded_runs import ingest_changed_run
from tests.step_reports import make_report

STORED = {1: range(1, 16), 4: [0]}


def store_all(report):
    """Let step 1 store 15 questions, step 4 the last, and fresh rollouts answer 0, 1, 2, those beside a replay 7."""
    if report.step in STORED:
        stored = STORED[report.step]
        report.buffer_events = [BufferEvent(BufferEventKind.INSERTED, item, item, 1, 1) for item in stored]
    for group in report.groups:
        for number, trajectory in enumerate(group.trajectories):
            trajectory.text = (
                "x" * 300 + rf"\boxed{{\frac{{1}}{{{7 if group.replays else number}}}}}." + "y" * 300 * (number % 2)
            )


@pytest.fixture
def run_id(database, tmp_path):
    run = ingest_changed_run(database, tmp_path, store_all, range(1, 9))
    return run.run_id


def test_the_top_tenth_has_the_replays_of_the_most_replayed_questions(database, run_id):
    points = replay_concentration(database, run_id)
    assert [point.step for point in points] == list(range(2, 9))
    counts = Counter()
    for point in points:
        counts.update(group.question.index for group in make_report(point.step).groups if group.replays)
        most = sum(count for _, count in counts.most_common(2))  # a tenth of 15 or 16, rounded up
        assert point.num_replayed == len(counts)
        assert (point.num_replays, point.num_questions) == (2 * (point.step - 1), 16 if point.step > 4 else 15)
        assert point.top_share == pytest.approx(most / point.num_replays)
    # Two even draws of 15: both in the top two.
    assert points[0].even_share == 1.0
    assert points[-1].top_share <= points[-1].even_share < 1.0


def test_different_answers_are_counted_by_question(database, run_id):
    points = answer_diversity(database, run_id)
    assert [point.step for point in points] == list(range(1, 9))
    assert all(point.fresh == 3.0 for point in points)
    assert np.isnan(points[0].replayed)
    assert all(point.replayed == 1.0 for point in points[1:])
