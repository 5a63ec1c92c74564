from dataclasses import replace

import numpy as np
import pytest
from sqlalchemy import select

from db.queries import buffer, selections
from db.queries.selections import trajectory_weights
from db.tables import models
from exgrpo_core.step_report import Selection
from tests.db.conftest import on_sqlite
from tests.db.recorded_runs import ingest_run, new_run, record_attempt
from tests.step_reports import make_report

# (trajectory of step 1, age, entropy, log of W): the first of each pair is replayed.
PAIRS = [((0, 1, 0.1, 0.0), (1, 1, 0.3, np.log(4.0))), ((3, 3, 0.2, np.log(2.0)), (4, 3, 0.4, np.log(8.0)))]


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


def test_several_replays_of_a_question_are_all_kept_and_its_first_choice_is_audited(database, tmp_path):
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


def test_replays_without_a_choice_are_listed_by_question(database, tmp_path):
    run_id = recorded(database, tmp_path, change=lambda report: report.selections.clear())
    assert selections.steps_with_selections(database, run_id) == []
    assert selections.steps_with_replays(database, run_id) == [2, 3, 4, 5]
    rows = selections.list_replayed_groups(database, run_id, 4)
    for row, replay in zip(rows, replays_of(4), strict=True):
        item = replay.experience
        assert (row.question_index, row.num_trajectories, row.is_external) == (item.question_index, 1, False)
        assert (row.first_rollout_step, row.last_rollout_step) == (item.rollout_step, item.rollout_step)
        assert row.num_tokens == item.token_ids.size
        assert row.mean_entropy == pytest.approx(float(replay.entropies.mean()), rel=1e-3)


def score(report):
    """Let step 1 write trajectories of log-prob -1 a token, and steps 2 and 4 score two of them each."""
    report.selections = []
    for group in report.groups:
        for trajectory in group.trajectories:
            trajectory.token_ids, trajectory.log_probs = np.arange(4, dtype=np.int32), np.full(4, -1.0, np.float32)
            trajectory.entropies = np.full(4, 0.5, np.float32)
    for pair in PAIRS:
        ids, ages, entropies, logs = map(np.array, zip(*pair, strict=True))
        if ages[0] + 1 == report.step:
            report.selections.append(
                Selection(
                    question_index=4, bucket=1, trajectory_ids=ids, rollout_steps=report.step - ages,
                    num_tokens=np.array([4, 4]), entropies=entropies.astype(np.float32),
                    nlls=(1.0 - logs / 4).astype(np.float32), scores=entropies.astype(np.float32), chosen=(0,),
                )
            )  # fmt: skip


def score_replayed_only(report):
    score(report)
    report.selections = [replace(selection, chosen=(0, 1)) for selection in report.selections]


@pytest.mark.parametrize(("most", "is_whole"), [(3, False), (4, True)])
@on_sqlite
def test_weights_say_how_many_candidates_they_are_of_where_all_are_replayed(
    database, tmp_path, monkeypatch, most, is_whole
):
    monkeypatch.setattr(selections, "MAX_CANDIDATES", most)
    weights = trajectory_weights(database, recorded(database, tmp_path, score_replayed_only), shaping_beta=1.0)
    assert (weights.num_candidates, weights.is_whole) == (min(most, 4), is_whole)
    assert weights.lines[0].num_trajectories == weights.num_candidates
