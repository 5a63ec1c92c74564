from pathlib import Path

import pytest

from exgrpo.jobs.tasks.grading import units
from exgrpo.jobs.tasks.grading.answer_grader import AnswerGrader, GradeItem
from exgrpo.jobs.tasks.grading.boxed_answers import joined_boxes
from exgrpo.jobs.tasks.grading.reward_function import Grade
from tests.jobs.tasks.grading.conftest import WRITTEN_PAIRS, read_pairs

pytestmark = pytest.mark.slow


@pytest.fixture
def is_right(grader):
    return lambda gold, response: grader.grade([GradeItem(gold, response, "math")]) == [Grade.CORRECT]


def boxed(answer):
    return f"so \\boxed{{{answer}}}"


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"\boxed{(2,2)} \text{ and } \boxed{(6,2)}", "(2,2), (6,2)"),
        (r"$\boxed{1}$, $\boxed{2}$ or $\boxed{3}$", "1, 2, 3"), (r"$x_1 = \boxed{5} \quad x_2 = \boxed{7}$", "5, 7"),
        (r"First \boxed{4}. Then we add one, so \boxed{5}", "5"), (r"\boxed{5}, \boxed{5}", "5"),
        ("$\\boxed{12}$\n$\\boxed{13}$", "13"), (r"\boxed{1 + \boxed{2}}", "2"), ("no box", None),
    ],
)  # fmt: skip
def test_boxes_that_are_joined_are_one_answer(response, answer):
    assert joined_boxes(response) == answer


def test_a_list_in_several_boxes_is_graded_as_a_list(is_right):
    assert is_right("(6,2), (2,2)", r"\boxed{(2,2)} and \boxed{(6,2)}")
    assert not is_right("(6,2)", r"\boxed{(2,2)} and \boxed{(6,2)}")


def test_a_choice_is_the_last_box_however_often_it_is_boxed():
    with AnswerGrader() as grader:
        item = GradeItem("B", "\\boxed{B}, \\boxed{\\text{B}}", "choice")
        assert grader.grade([item]) == [Grade.CORRECT]


@pytest.mark.parametrize("name", ["disputed", "units", "too_strict"])
def test_answers_that_users_reported_have_the_right_verdict(is_right, shared_dir, name):
    rows = [row for row in read_pairs(shared_dir / "cases" / "grading" / f"{name}.tsv") if row[2] in {"C", "W"}]
    assert [row for row in rows if is_right(row[0], boxed(row[1])) != (row[2] == "C")] == []


def test_units_and_ways_of_writing_have_the_verdicts_that_people_gave_them(is_right):
    assert [row for row in WRITTEN_PAIRS if is_right(row[0], boxed(row[1])) != (row[2] == "C")] == []


def test_no_definition_of_a_unit_replaces_another_one():
    lines = (Path(units.__file__).parent / "units.yaml").read_text(encoding="utf-8").splitlines()
    names = [line.split(":")[0] for line in lines if ":" in line and not line.startswith("#")]
    assert [name for name in names if names.count(name) > 1] == []
