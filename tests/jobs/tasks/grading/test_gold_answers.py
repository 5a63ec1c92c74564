import pytest

from exgrpo.jobs.tasks.grading import gold_answers
from exgrpo.jobs.tasks.grading.gold_answers import MAX_COMPARED, gold_notices, unreadable_golds

pytestmark = pytest.mark.slow

READ = [
    "7", "7 apples", "The answer is 42.", "#### 18", "5 + 2 = 7, so #### 7", r"\boxed{7}", "yes", "Paris", "x=5",
    "3 or 4", r"\text{Evelyn}", "10:30 am", "A", "No real solutions", r"f(x)=\sin(2x)", "arctan(1/2)", "max(2, 3)",
    r"\{1,2\}", "∅", "∞", r"25\%", "90 degrees", "abc + 1", "xyz=7", r"6 \mathrm{~cm}", "-3.5", "1,234", r"\varnothing",
    r"\begin{pmatrix} -1/3 \\ 2/3 \end{pmatrix}", r"5\text{ apples and pears}", "3 men", "3x^2 + abc", "log 5",
    "3 dollars", "0.5 meters per second",
]  # fmt: skip
NOT_READ = [
    "So there are 7 apples", "42 (approximately)", "7, because 3 + 4 = 7",
    r"\frac{1", r"\sqrt{", "?", "-", "...", "∎", "答案是7", "There are no real solutions to this equation",
    "1" * 1001,
]  # fmt: skip


def test_golds_that_no_right_answer_equals_are_found_and_no_others():
    found, num_looked = unreadable_golds([*READ, *NOT_READ])
    assert [(READ + NOT_READ)[position] for position in found] == NOT_READ
    assert num_looked == len(READ) + len(NOT_READ)


def test_so_many_golds_are_looked_at_as_can_be_in_seconds_and_it_is_said(monkeypatch):
    assert MAX_COMPARED <= 200
    monkeypatch.setattr(gold_answers, "MAX_COMPARED", 5)
    golds = [("row 1", "?"), *((f"row {number}", f"So there are {number} apples") for number in range(2, 10))]
    golds.append(("row 10", "?"))
    assert "6 of the first 6 " in gold_notices("a.jsonl", golds)[0]
