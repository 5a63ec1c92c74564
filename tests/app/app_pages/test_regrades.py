import pytest

from jobs.evaluation.regrades import ChangedOutcome, RecordedRegrading, Regrading, regrading_path, write_regrading
from tests.app import scored
from tests.app.page_texts import has_text
from tests.app.recorded import HOSTILE

CHANGES = [ChangedOutcome(HOSTILE, "paper", "wrong", "correct"), ChangedOutcome("q2", "corrected", "", "wrong")]
RECORDED = RecordedRegrading("all", "g2", Regrading("x", 12, {"paper": 3, "corrected": 5}, {"paper": 4}, CHANGES))


def counts_and_changes(page):
    frames = [element.value for element in page.dataframe]
    return [
        next(frame for frame in frames if column in frame).to_dict("records") for column in ("Correct before", "Before")
    ]


def check(page):
    assert not page.exception
    assert has_text(page, "12 recorded answers, now by grader g2")
    counts, changes = counts_and_changes(page)
    assert counts[0] == {"Scheme": "paper", "Correct before": 3, "Correct now": 4}
    assert [(change["Before"], change["Now"]) for change in changes] == [("wrong", "correct"), ("none", "wrong")]
    assert "\x1b" not in changes[0]["Answer"]


@pytest.mark.usefixtures("recorded_runs")
def test_a_run_whose_answers_were_graded_again_shows_both_grades_and_what_changed(runs_root, open_page):
    assert "Graded again" not in [tab.label for tab in open_page("run", run="run-finished").tabs]
    write_regrading(runs_root / "run-finished", RECORDED)
    check(open_page("run", run="run-finished", view="Graded again"))


def test_an_evaluation_that_graded_another_again_shows_it_below_its_scores(runs_root, open_page):
    scored.record_all(runs_root)
    write_regrading(runs_root / "eval-late", RECORDED)
    check(open_page("run", run="eval-late"))


def test_a_damaged_file_of_a_grading_leaves_the_page_whole(runs_root, open_page):
    scored.record_all(runs_root)
    write_regrading(runs_root / "eval-late", RECORDED)
    regrading_path(runs_root / "eval-late", "all", "g2").write_text("{")
    page = open_page("run", run="eval-late")
    assert not page.exception
    assert not has_text(page, "graded again")
