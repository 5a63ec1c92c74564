import json

import pytest
from typer.testing import CliRunner

import exgrpo
from exgrpo.jobs.cli.main import app

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
    with pytest.raises(ValueError, match="nobody"):
        exgrpo.grade_answer("1", "1", "nobody")
