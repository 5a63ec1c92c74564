import pytest

from jobs.tasks.chains.oracle import judge_response
from jobs.tasks.chains.problem import ChainProblem

PROBLEM = ChainProblem.parse("Q6a*2b*9c-5d*3:", modulus=10)
STEPS = "6;a*2=2;b*9=8;c-5=3;d*3=9;"
RIGHT_CODE = "```python\nx=6\nx*=2\nx*=9\nx=((x-5)*3)\nx%=10\nprint(x)\n```\n"
WRONG_CODE = "```python\nx=6\nx*=2\nx%=10\nprint(x)\n```\n"
BOX = r"\boxed{9}"


def test_every_step_right_is_valid():
    judgement = judge_response(PROBLEM, STEPS + BOX)
    assert judgement.is_correct
    assert judgement.is_valid
    assert not judgement.has_code
    assert judgement.num_good_steps == 4
    assert not judgement.is_lucky_hit


def test_a_skipped_step_is_a_lucky_hit():
    judgement = judge_response(PROBLEM, r"6;a*2=2;b*9=8;d*3=9;\boxed{9}")
    assert judgement.is_lucky_hit
    assert judgement.num_good_steps == 2


def test_wrong_steps_that_end_at_the_right_answer_are_a_lucky_hit():
    judgement = judge_response(PROBLEM, r"6;a*2=2;b*9=7;c-5=2;d*3=9;\boxed{9}")
    assert judgement.is_lucky_hit
    assert judgement.num_good_steps == 1


def test_right_steps_with_a_wrong_box_are_neither_correct_nor_valid():
    judgement = judge_response(PROBLEM, STEPS + r"\boxed{3}")
    assert not judgement.is_correct
    assert not judgement.is_valid
    assert judgement.num_good_steps == 4


def test_needless_code_that_prints_the_answer_stays_valid():
    judgement = judge_response(PROBLEM, STEPS + RIGHT_CODE + BOX)
    assert judgement.is_valid
    assert judgement.has_code


def test_code_that_prints_something_else_makes_a_right_answer_a_lucky_hit():
    judgement = judge_response(PROBLEM, STEPS + WRONG_CODE + BOX)
    assert judgement.is_lucky_hit
    assert judgement.has_code


def test_code_without_steps_is_correct_but_not_valid():
    judgement = judge_response(PROBLEM, RIGHT_CODE + BOX)
    assert judgement.is_lucky_hit
    assert judgement.num_good_steps == 0


@pytest.mark.parametrize(
    ("text", "is_correct", "has_box"),
    [
        (STEPS, False, False),
        (STEPS + r"\boxed{}", False, False),
        (STEPS + BOX + BOX, False, True),
        (r"\boxed{9}", True, True),
        ("", False, False),
        (r"7;a*2=2;b*9=8;c-5=3;d*3=9;\boxed{9}", True, True),
        (STEPS + BOX + ";", True, True),
        (STEPS + "\n" + BOX, True, True),
        (r"6;a*2=2;b*9=8;c-5=3;d*3=9;e+1=0;\boxed{9}", True, True),
        (r"6;b*2=2;b*9=8;c-5=3;d*3=9;\boxed{9}", True, True),
        (STEPS + "```python\nx=9\nprint(x)\n" + BOX, True, True),
        (STEPS + "```python\nx=9\nprint(x)\nprint(x)\n```\n" + BOX, True, True),
    ],
)
def test_anything_beside_the_exact_form_is_not_valid(text, is_correct, has_box):
    judgement = judge_response(PROBLEM, text)
    assert judgement.is_correct == is_correct
    assert judgement.has_box == has_box
    assert not judgement.is_valid


def test_two_digit_chains_are_judged_by_their_own_modulus():
    problem = ChainProblem.parse("Q63a*9b-8:", modulus=100)
    assert judge_response(problem, r"63;a*9=67;b-8=59;\boxed{59}").is_valid
    assert not judge_response(problem, r"63;a*9=7;b-8=59;\boxed{59}").is_valid
