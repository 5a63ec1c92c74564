import pytest

from exgrpo.jobs.tasks.chains.oracle import ProgramError, judge_response, run_program
from exgrpo.jobs.tasks.chains.question_set import ChainProblem

PROBLEM = ChainProblem.parse("Q6a*2b*9c-5d*3:", modulus=10)
STEPS = "6;a*2=2;b*9=8;c-5=3;d*3=9;"
RIGHT_CODE = "```python\nx=6\nx*=2\nx*=9\nx=((x-5)*3)\nx%=10\nprint(x)\n```\n"
WRONG_CODE = "```python\nx=6\nx*=2\nx%=10\nprint(x)\n```\n"
BOX = r"\boxed{9}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # what follows: correct, valid, with code, good steps
        (STEPS + BOX, (True, True, False, 4)), (r"6;a*2=2;b*9=8;d*3=9;\boxed{9}", (True, False, False, 2)),
        (r"6;a*2=2;b*9=7;c-5=2;d*3=9;\boxed{9}", (True, False, False, 1)),
        (STEPS + r"\boxed{3}", (False, False, False, 4)), (STEPS + RIGHT_CODE + BOX, (True, True, True, 4)),
        (STEPS + WRONG_CODE + BOX, (True, False, True, 4)), (RIGHT_CODE + BOX, (True, False, True, 0)),
        (r"6;a*2=2;b*9=8;c-5=3;\boxed{9}", (True, False, False, 3)),
    ],
    ids=["whole", "step skipped", "wrong steps", "wrong box", "needless code", "wrong code", "code alone", "cut short"],
)  # fmt: skip
def test_steps_code_and_answer_are_judged(text, expected):
    found = judge_response(PROBLEM, text)
    assert (found.is_correct, found.is_valid, found.has_code, found.num_good_steps) == expected


@pytest.mark.parametrize(
    ("text", "is_correct", "has_box"),
    [
        (STEPS, False, False), (STEPS + r"\boxed{}", False, False), (STEPS + BOX + BOX, False, True),
        (r"7;a*2=2;b*9=8;c-5=3;d*3=9;\boxed{9}", True, True), (STEPS + BOX + ";", True, True),
        (STEPS + "\n" + BOX, True, True), (r"6;b*2=2;b*9=8;c-5=3;d*3=9;\boxed{9}", True, True),
        (r"6;a*2=2;b*9=8;c-5=3;d*3=9;e+1=0;\boxed{9}", True, True),
        (STEPS + "```python\nx=9\nprint(x)\n" + BOX, True, True),
        (STEPS + "```python\nx=9\nprint(x)\nprint(x)\n```\n" + BOX, True, True),
    ],
)  # fmt: skip
def test_anything_beside_the_exact_form_is_not_valid(text, is_correct, has_box):
    judgement = judge_response(PROBLEM, text)
    assert judgement.is_correct == is_correct
    assert judgement.has_box == has_box
    assert not judgement.is_valid


def test_two_digit_chains_are_judged_by_their_own_modulus():
    problem = ChainProblem.parse("Q63a*9b-8:", modulus=100)
    assert judge_response(problem, r"63;a*9=67;b-8=59;\boxed{59}").is_valid
    assert not judge_response(problem, r"63;a*9=7;b-8=59;\boxed{59}").is_valid


@pytest.mark.parametrize(
    ("source", "printed"),
    [
        ("x=6\nx*=2\nx%=10\nprint(x)\n", [2]), ("v=(((6*2)-5)*3)%10\nprint(v)\n", [1]),
        ("x=3\ny=x-9\ny%=10\nprint(y)\nprint(x)\n", [4, 3]), ("x=-7%10\nprint(x)\n", [3]), ("", []),
    ],
)  # fmt: skip
def test_programs_of_the_language_run_as_python_would(source, printed):
    assert run_program(source) == printed


@pytest.mark.parametrize(
    "source",
    [
        "import os\n", "x=__import__('os')\n", "x=2**9\nprint(x)\n", "x=9\nx//=2\nprint(x)\n", "x,y=1,2\n",
        "print(x)\n", "x+=1\n", "x=1%0\n", "x=1\nprint(x,x)\n", "x=1\nprint(x+1)\n", "while 1:\n x=1\n",
        "x=lambda y: y\n", "x=(\n", "x=1 if 2 else 3\n",
        "x=07\n", "x=" + "9" * 100 + "\n", "x=9\n" + "x*=x\n" * 12, "x=" + "(" * 300 + "1" + ")" * 300 + "\n",
        "x=" + "-" * 300 + "1\n", "x=1\n" * 1000,
    ],
)  # fmt: skip
def test_anything_else_is_refused(source):
    with pytest.raises(ProgramError):
        run_program(source)
