import math

import pytest

from db.queries.verdicts import outcome_cells, wrong_answers
from tests.db.queries.test_judging import ingest_job, job_of_votes
from tests.db.recorded_chains import Response, Step, record_steps
from tests.db.recorded_runs import ingest_run

pytestmark = pytest.mark.slow


def test_answers_and_verdicts_make_cells_with_entropy(database, tmp_path):
    right = [Response(0.1, is_valid=True), Response(0.3, is_valid=True), Response(0.5, is_valid=False)]
    wrong = [Response(0.7, is_correct=False, is_valid=False), Response(0.9, is_correct=False)]
    ingest_run(database, record_steps(tmp_path, [Step({0: right + wrong})]))
    cells = outcome_cells(database, "trained")
    assert [(cell.is_correct, cell.is_valid, cell.num_trajectories) for cell in cells] == [
        (True, True, 2), (True, False, 1), (False, False, 1), (False, None, 1)
    ]  # fmt: skip
    assert [cell.mean_entropy for cell in cells] == pytest.approx([0.2, 0.5, 0.7, 0.9])
    # Of .1 and .3 around .2, by n - 1; one value has none.
    assert [cell.num_entropies for cell in cells] == [2, 1, 1, 1]
    deviations = [cell.entropy_deviation for cell in cells]
    assert deviations == pytest.approx([0.1 * 2**0.5, *[float("nan")] * 3], abs=1e-6, nan_ok=True)
    ingest_job(database, job_of_votes(tmp_path, [("a", 0, "invalid", None), ("b", 3, "valid", None)]))
    voted = outcome_cells(database, "trained", "voted")
    assert {(cell.is_correct, cell.is_valid): cell.num_trajectories for cell in voted} == {
        (True, False): 1, (True, None): 2, (False, True): 1, (False, None): 1,
    }  # fmt: skip


def test_wrong_answers_come_newest_first_with_their_questions(database, tmp_path):
    group = [Response(0.2, text="right"), Response(0.4, is_correct=False, text="wrong")]
    ingest_run(database, record_steps(tmp_path, [Step({0: group}), Step({1: group})]))
    newest, oldest = wrong_answers(database, "trained")
    assert (newest.step, newest.question_index, newest.prompt_text) == (2, 1, "prompt 1")
    assert (oldest.step, oldest.text, oldest.details) == (1, "wrong", {"question": "Q0"})
    assert (oldest.mean_entropy, oldest.correctness_rate) == (pytest.approx(0.4), 0.5)


def test_cells_without_entropy_say_so(database, tmp_path):
    ingest_run(database, record_steps(tmp_path, [Step({0: [Response(math.nan)]})]))
    (cell,) = outcome_cells(database, "trained")
    assert math.isnan(cell.mean_entropy)
