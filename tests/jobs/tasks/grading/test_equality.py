import csv
from pathlib import Path

import pytest

from jobs.tasks.grading.answer_grader import AnswerGrader, GradeItem
from jobs.tasks.grading.boxed_answers import joined_boxes
from jobs.tasks.grading.reward_function import Grade

pytestmark = pytest.mark.slow

DIFFERENT = [
    (r"2.5 \times 10^{-19}", r"2.5 \times 10^{-20}"),
    (r"\frac{1}{10^{30}}", "0"),
    ("CAT", "ACT"),
    ("dusty", "study"),
    (r"\text{north east}", r"\text{east north}"),
    (r"\angle PQR", r"\angle QPR"),
    (r"\overline{AB}", r"\overline{AC}"),
    ("0b101", "0b110"),
    ("rR", "r^2"),
    (r"\frac{m}{M}", "1"),
    ("€5", "£5"),
    ("A \\cup B", "A \\cap B"),
    (r"0.1\overline{6}", r"0.\overline{16}"),
    (r"(-\infty,2)\cup(3,\infty)", r"x \le 2 \text{ or } x>3"),
    ("[1,2)", r"1 < x < 2"),
    ("6", "√16"),
    ("-4", "1\N{EN DASH}5"),
    ("1e-05", "1e-06"),
    ("1e+21", "10^{20}"),
    ("12 345", "12354"),
    (r"\text{June 20}", "June 21"),
]
SAME = [
    (r"6.02 \times 10^{-23}", r"0.602 \times 10^{-22}"),
    (r"\frac13", "0.333333"),
    ("xy", "yx"),
    ("AB", "BA"),
    ("1.5E3", r"1.5 \times 10^3 \text{ meters}"),
    ("Quadrant 2", "quadrant 2"),
    (r"\mathbb{R}", r"r \in \mathbb{R}"),
    ("V=IR", "v=IR"),
    ("4", "√16"),
    (r"\sqrt{12}", "√12"),
    ("[1,2)", r"1 \leq x < 2"),
    (r"(-\infty,2)", "2 > x"),
    ("3xy", "3yx"),
    (r"\frac{V}{2}", "V/2"),
    (r"\text{Yes}", "yes"),
    (r"\angle ABC", r"\angle CBA"),
    (r"\triangle ABC", r"\triangle BCA"),
    ("0x1F", "31"),
    (r"\frac16", r"0.1\overline{6}"),
    (r"2\pi", "2π"),
    (r"\sqrt{2}", "√{2}"),
    (r"x \le 3", "x ≤ 3"),
    ("12", "£12"),
    (r"\emptyset", "∅"),
    ("[1,2)", r"1 \le x < 2"),
    (r"(3,\infty)", "x > 3"),
    ("C", r"\text{(C) } 12"),
    (r"90^\circ", "90°"),
    ("B \\cap C", "C \\cap B"),
    ("1e-05", "10^{-5}"),
    ("0.00001", "1e-05"),
    ("1e+21", "10^{21}"),
    ("1500", "1.5e3"),
    ("2e-3", "0.002"),
    ("12345", "12 345"),
    ("1234567", r"1\ 234\ 567"),
    (r"\text{June 20}", "June 20"),
]


@pytest.fixture
def is_right(grader):
    return lambda gold, response: grader.grade([GradeItem(gold, response, "math")]) == [Grade.CORRECT]


def boxed(answer):
    return f"so \\boxed{{{answer}}}"


@pytest.mark.parametrize(("gold", "answer"), DIFFERENT)
def test_what_differs_is_wrong(is_right, gold, answer):
    assert not is_right(gold, boxed(answer))
    assert not is_right(answer, boxed(gold))


@pytest.mark.parametrize(("gold", "answer"), SAME)
def test_what_is_the_same_is_right(is_right, gold, answer):
    assert is_right(gold, boxed(answer))


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"\boxed{(2,2)} \text{ and } \boxed{(6,2)}", "(2,2), (6,2)"),
        (r"$\boxed{1}$, $\boxed{2}$ or $\boxed{3}$", "1, 2, 3"),
        (r"$x_1 = \boxed{5} \quad x_2 = \boxed{7}$", "5, 7"),
        (r"First \boxed{4}. Then we add one, so \boxed{5}", "5"),
        (r"\boxed{5}, \boxed{5}", "5"),
        ("$\\boxed{12}$\n$\\boxed{13}$", "13"),
        (r"\boxed{1 + \boxed{2}}", "2"),
        ("no box", None),
    ],
)
def test_boxes_that_are_joined_are_one_answer(response, answer):
    assert joined_boxes(response) == answer


def test_a_list_in_several_boxes_is_graded_as_a_list(is_right):
    assert is_right("(6,2), (2,2)", r"\boxed{(2,2)} and \boxed{(6,2)}")
    assert not is_right("(6,2)", r"\boxed{(2,2)} and \boxed{(6,2)}")


def test_a_choice_is_the_last_box_however_often_it_is_boxed():
    with AnswerGrader() as grader:
        item = GradeItem("B", "\\boxed{B}, \\boxed{\\text{B}}", "choice")
        assert grader.grade([item]) == [Grade.CORRECT]


def read_cases(path):
    with path.open(encoding="utf-8") as file:
        return [tuple(row) for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE) if len(row) == 3]


@pytest.mark.parametrize("name", ["disputed", "units", "too_strict"])
def test_answers_that_users_reported_have_the_right_verdict(is_right, shared_dir, name):
    rows = [row for row in read_cases(shared_dir / "cases" / "grading" / f"{name}.tsv") if row[2] in {"C", "W"}]
    assert [row for row in rows if is_right(row[0], boxed(row[1])) != (row[2] == "C")] == []


def test_units_and_ways_of_writing_have_the_verdicts_that_people_gave_them(is_right):
    rows = read_cases(Path(__file__).parent / "written_pairs.tsv")
    assert len(rows) > 150
    assert [row for row in rows if is_right(row[0], boxed(row[1])) != (row[2] == "C")] == []
