from dataclasses import replace

import numpy as np
import pytest

from db.queries.draw_effects import OBSERVATION, draw_effect, draw_effects
from exgrpo_core.step_report import BufferEvent, BufferEventKind
from tests.db.conftest import on_sqlite
from tests.db.recorded_runs import ingest_changed_run

# (step, question, bucket, drawn, retired, next rate): step 1 draws question 0 of 0, 1, 2; step 2 question 1 of 0, 1.
SEEN = [
    (1, 0, 2, True, False, 1.0),
    (1, 1, 2, False, False, 0.5),
    (1, 2, 2, False, False, 0.25),
    (2, 1, 2, True, False, 0.75),
    (2, 0, 2, False, False, 0.5),
    (2, 3, 1, False, False, 0.75),
    (2, 4, 2, True, True, np.nan),
]


def observations():
    rows = [(*row[:5], 1.0, np.nan if np.isnan(row[5]) else 2.0 + row[3], row[5], np.nan) for row in SEEN]
    return np.array(rows, dtype=OBSERVATION)


def test_without_buckets_of_correct_rollouts_shares_are_compared_and_the_difference_is_the_same():
    """Step 1 weighs 2/3 with drawn 1 and undrawn 3/8, step 2 weighs 1/2 with 3/4 and 1/2."""
    effect = draw_effect("all", observations(), np.ones(7, dtype=bool), num_rollouts=None)
    assert effect.change_drawn == pytest.approx((2 / 3 * 1 + 1 / 2 * 3 / 4) / (7 / 6))
    assert effect.change_undrawn == pytest.approx((2 / 3 * 3 / 8 + 1 / 2 * 1 / 2) / (7 / 6))
    assert effect.difference.value == pytest.approx(13 / 28)


@on_sqlite
def test_a_recorded_run_is_read_as_it_was_drawn(database, tmp_path):
    """Step s tries questions 4s to 4s + 3, modulo 16, and draws the last two; steps 1 to 4 put all into bucket 1."""

    def change(report):
        indices = [group.question.index for group in report.groups] if report.step < 5 else []
        report.buffer_events = [BufferEvent(BufferEventKind.MOVED, index, None, None, 1) for index in indices]
        for group in report.groups:
            for number, trajectory in enumerate(group.trajectories):
                trajectory.reward = float(number == 0 or group.question.index == 6)

    run = ingest_changed_run(database, tmp_path, change, range(1, 10))
    overall, in_bucket, *_ = draw_effects(database, run.run_id, 3)
    # Only the draws of step 5, questions 6 and 7, were in a bucket and are tried again. Undrawn with a next attempt:
    # 4, 8 and 12 questions in steps 2 to 4, then 12, 12, 8 and 4.
    assert (overall.group, overall.num_drawn, overall.num_undrawn) == ("all", 2, 60)
    assert in_bucket == replace(overall, group="bucket 1")
    # In step 9: 1 and 1/2 of 2 rollouts. Undrawn ones of step 5: 1/3 of the 6 fresh, 1/2 of the 6 drawn next.
    assert overall.difference.value == pytest.approx(3 / 4 - 5 / 12)
    assert (overall.wait_drawn, overall.wait_undrawn) == (4.0, 2.0)


@on_sqlite
def test_a_run_without_draws_has_no_effects(database, tmp_path):
    run = ingest_changed_run(database, tmp_path, None, [1])
    assert draw_effects(database, run.run_id, 3) == []
