from dataclasses import replace

import numpy as np
import pytest
from sqlalchemy import select

from exgrpo.db.queries import buffer, selections
from exgrpo.db.tables import models
from tests.db.recorded_runs import ingest_run, new_run, record_attempt
from tests.step_reports import make_report


def replays_of(step):
    drawn = [group.replays[0] for group in make_report(step).groups if group.replays]
    return sorted(drawn, key=lambda replay: replay.experience.question_index)


def recorded(database, tmp_path, change=None):
    run = new_run(tmp_path)
    record_attempt(run, range(1, 6), change=change)
    ingest_run(database, run)
    return run.run_id


def rescore(scores):
    def change(report):
        for selection in report.selections:
            selection.scores[:] = scores

    return change


@pytest.mark.parametrize(("scores", "is_wrong"), [([0.4, 0.5], True), ([0.5, 0.5], False), ([np.nan] * 2, False)])
def test_choice_that_is_not_the_lowest_score_is_found(database, tmp_path, scores, is_wrong):
    run_id = recorded(database, tmp_path, rescore(scores))
    wrong = selections.wrong_choices(database, run_id)
    assert bool(wrong) is is_wrong
    if is_wrong:
        assert selections.wrong_choices(database, run_id, 3) == [row for row in wrong if row.step >= 3]
        assert selections.wrong_choices(database, run_id, wrong[-1].step + 1) == []
        assert (wrong[0].step, wrong[0].num_chosen) == (2, 1)
        assert (wrong[0].chosen_score, wrong[0].lowest_score) == pytest.approx((0.5, 0.4))


def replay_twice(report):
    for group in report.groups:
        if group.replays:
            other = group.replays[0].experience._replace(trajectory_id=group.replays[0].experience.trajectory_id + 1000)
            group.replays = (*group.replays, replace(group.replays[0], experience=other))
            group.advantages = np.append(group.advantages, np.float32(0.0))
    report.selections = [
        replace(item, chosen=(*item.chosen, 0), scores=np.float32([0.7, 0.5])) for item in report.selections
    ]


def test_several_replays_of_a_question_are_all_kept_and_the_row_is_of_its_first_choice(database, tmp_path):
    run_id = recorded(database, tmp_path, replay_twice)
    rows = selections.list_selections(database, run_id, 4)
    expected = [replay.experience.trajectory_id for replay in replays_of(4)]
    assert [row.replayed_trajectory_id for row in rows] == [row.chosen_trajectory_id for row in rows] == expected
    with database.read() as connection:
        replayed = connection.execute(select(models.replays.c.trajectory_id).where(models.replays.c.step == 4))
        assert sorted(replayed.scalars()) == sorted([*expected, *(number + 1000 for number in expected)])
    candidates = buffer.candidates(database, run_id, 4)
    assert all(row.is_chosen for row in candidates)
    assert selections.wrong_choices(database, run_id) == []
