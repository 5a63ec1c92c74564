import pytest

from db.queries import selections
from tests.db.recorded_runs import ingest_run, new_run, record_attempt
from tests.step_reports import make_report


def replays_of(step):
    drawn = [group.replay for group in make_report(step).groups if group.replay]
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


def test_selections_come_with_their_replays(database, tmp_path):
    run_id = recorded(database, tmp_path)
    assert selections.steps_with_selections(database, run_id) == [2, 3, 4, 5]
    rows = selections.list_selections(database, run_id, 4)
    expected = replays_of(4)
    assert [row.question_index for row in rows] == [entry.experience.question_index for entry in expected]
    for row, item in zip(rows, expected, strict=True):
        assert row.chosen_trajectory_id == row.replayed_trajectory_id == item.experience.trajectory_id
        assert row.mean_entropy == pytest.approx(float(item.entropies.mean()))
        assert row.file.endswith("step-00000004.parquet")
        assert row.birth_file is None


@pytest.mark.parametrize(("scores", "is_wrong"), [([0.4, 0.5], True), ([0.5, 0.5], False), ([0.9, 0.5], False)])
def test_choice_that_is_not_the_lowest_score_is_found(database, tmp_path, scores, is_wrong):
    run_id = recorded(database, tmp_path, rescore(scores))
    wrong = selections.wrong_choices(database, run_id)
    assert bool(wrong) is is_wrong
    if is_wrong:
        assert selections.wrong_choices(database, run_id, 3) == [row for row in wrong if row.step >= 3]
        assert selections.wrong_choices(database, run_id, wrong[-1].step + 1) == []
        assert (wrong[0].step, wrong[0].num_chosen) == (2, 1)
        assert (wrong[0].chosen_score, wrong[0].lowest_score) == pytest.approx((0.5, 0.4))


def test_choice_without_scores_is_not_blamed(database, tmp_path):
    assert selections.wrong_choices(database, recorded(database, tmp_path, rescore([float("nan")] * 2))) == []


def test_an_empty_database_selected_nothing(database):
    assert selections.steps_with_selections(database, "none") == []
    assert selections.list_selections(database, "none", 2) == []
    assert selections.wrong_choices(database, "none") == []
