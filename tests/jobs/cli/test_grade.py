import json
from fractions import Fraction

import numpy as np
import pytest
from typer.testing import CliRunner

import exgrpo
from exgrpo.jobs.cli.main import app
from exgrpo_core.errors import InputError

pytestmark = pytest.mark.slow
NOTE = r"In a run a response without \boxed{...} earns nothing."


@pytest.mark.parametrize(
    ("words", "printed", "is_noted"),
    [
        ([r"so it is \boxed{1.5 \text{ km}}", "--gold", "1500 m"], "correct: units", False),
        (["twenty-one", "--gold", "21"], "correct: numbers in words", True),
        (["--gold", "-5", "--", "-5"], "correct: texts and plain numbers", True),
        (["22", "--gold", "21"], "wrong: texts and plain numbers", True),
        (["twenty-one", "--gold", "21", "--grading", "paper"], "wrong: the published rules", True),
        (["Option B", "--gold", "B", "--kind", "choice"], "correct: the label of an option", True),
        ([r"\boxed{5", "--gold", "5"], r"unparsed: no \boxed{...} that closes", False),
    ],
)
def test_an_answer_is_graded_as_in_a_run_and_the_rule_that_decided_is_printed(words, printed, is_noted):
    result = CliRunner().invoke(app, ["grade", *words])
    assert (result.stdout.strip(), result.exit_code, NOTE in result.stderr) == (printed, 0, is_noted)


def test_the_verdict_is_json_for_programs_and_has_a_name_in_python():
    result = CliRunner().invoke(app, ["grade", "x+1", "--gold", "1+x", "--json"])
    decision = exgrpo.grade_answer("x+1", "1+x")
    assert json.loads(result.stdout) == {"grade": "correct", "rule": "Math-Verify with corrections"}
    assert decision._asdict() == json.loads(result.stdout)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"grading": "xx"}, "grading: 'xx' is not one of 'paper', 'training'."),
        ({"grading": "Paper"}, "grading: 'Paper' is not one of 'paper', 'training'."),
        ({"kind": "xx"}, "kind: 'xx' is not one of 'math', 'choice'."),
        ({"kind": "auto"}, "kind: 'auto' is not one of 'math', 'choice'."),
        ({"kind": None}, "kind: nothing is not one of 'math', 'choice'."),
        ({"gold": None}, "gold: expected a text or a number, not nothing."),
        ({"answer": ["1"]}, "answer: expected a text or a number, not ['1']."),
        ({"answer": b"1"}, "answer: expected a text or a number, not b'1'."),
    ],
)
def test_a_call_that_cannot_be_graded_gets_one_sentence(words, sentence):
    with pytest.raises(InputError) as error:
        exgrpo.grade_answer(**{"answer": "1", "gold": "1"} | words)
    assert str(error.value) == sentence


@pytest.mark.parametrize(
    ("answer", "gold", "grade"),
    [
        (1.5, "1.5 people", "correct"), (5, 5.0, "correct"), ("1/2", 0.5, "correct"),
        (Fraction(1, 2), "0.5", "correct"),
        (np.float32(2.5), "5/2", "correct"), (np.int64(7), "7", "correct"), (1.5, "15", "wrong"),
    ],
)  # fmt: skip
def test_numbers_are_graded_as_their_text(answer, gold, grade):
    assert exgrpo.grade_answer(answer, gold).grade == grade


@pytest.mark.parametrize("option", ["--grading", "--kind"])
def test_the_command_names_the_same_choices(option):
    result = CliRunner().invoke(app, ["grade", "1", "--gold", "1", option, "xx"])
    with pytest.raises(InputError) as error:
        exgrpo.grade_answer("1", "1", **{option.strip("-"): "xx"})
    assert str(error.value).partition(": ")[2] in result.stderr


def test_the_help_shows_how_to_grade_a_negative_answer():
    assert "exgrpo grade --gold -5 -- -5" in " ".join(CliRunner().invoke(app, ["grade", "--help"]).stdout.split())
