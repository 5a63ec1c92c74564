import hashlib
import json
from pathlib import Path

import pytest

from exgrpo.jobs.tasks.grading import answer_grader
from exgrpo.jobs.tasks.grading.answer_grader import GRADING_RULES, AnswerGrader, GradeItem, Scheme, grader_version
from exgrpo.jobs.tasks.grading.reward_function import Grade
from tests.jobs.tasks.grading.conftest import WRITTEN_PAIRS

pytestmark = pytest.mark.slow

C, W, U = Grade.CORRECT, Grade.WRONG, Grade.UNPARSED
# Gold answer, response, and what the schemes `paper` and `training` say.
MATH = [
    ("42", r"\boxed{42}", (C, C)), ("42", r"\boxed{6*7}", (C, C)), ("42", r"\boxed{6 - 1}", (W, W)),
    ("1024", r"\boxed{2^{10}}", (C, C)), ("120", r"\boxed{5!}", (C, C)), ("6", r"\boxed{\binom{4}{2}}", (C, C)),
    ("1/2", r"\boxed{\left(\frac12\right)}", (C, C)), ("1", r"\boxed{\frac3{3}}", (C, C)),
    ("-1/2", r"\boxed{\frac{1}{-2}}", (C, C)), ("5", r"\boxed{(5)}", (C, C)), ("5", r"\boxed{{5}}", (C, C)),
    ("5", r"\boxed{--5}", (C, C)), ("16386.20", r"\boxed{\$16,\!386.20}", (C, C)), ("1000", r"\boxed{1 000}", (C, C)),
    ("12", r"\boxed{1\ 2}", (W, W)), ("32349", r"\boxed{32, 349}", (C, W)), ("7/2", r"\boxed{3 1/2}", (C, C)),
    ("31/2", r"\boxed{3 1/2}", (C, W)), ("5", r"\boxed{5K}", (W, W)), ("5000", r"\boxed{5K}", (W, W)),
    ("5", r"\boxed{5\text{ million}}", (C, W)), ("5000000", r"\boxed{5\text{ million}}", (W, C)),
    ("5 m", r"\boxed{5 km}", (C, W)), (r"5\text{ m}", r"\boxed{500\text{ cm}}", (W, C)),
    (r"10\text{ m/s}", r"\boxed{36\text{ km/h}}", (W, C)), (r"15\text{ cm}^2", r"\boxed{15\text{ cm}}", (C, W)),
    ("5 m", r"\boxed{5}", (C, C)), (r"5\text{ yuan}", r"\boxed{5\text{ apples}}", (C, C)),
    ("5m", r"\boxed{5}", (C, C)), ("5m", r"\boxed{5 m}", (C, C)), ("0.5", r"\boxed{0.5\%}", (C, W)),
    ("0.5", r"\boxed{50\%}", (C, C)), (r"50\%", r"\boxed{0.5}", (C, C)), (r"50\%", r"\boxed{50}", (C, C)),
    ("1010_2", r"\boxed{1010_3}", (C, W)), ("1010_2", r"\boxed{1010}", (C, W)), ("204_5", r"\boxed{54}", (W, C)),
    ("(1,2)", r"\boxed{\{1,2\}}", (C, C)), (r"\{1,2\}", r"\boxed{(1,2)}", (C, C)),
    (r"\{1,2\}", r"\boxed{2,1}", (C, C)), ("(1,2)", r"\boxed{1,2}", (C, C)), ("(1,2)", r"\boxed{2,1}", (W, W)),
    ("5", r"\boxed{5 \text{ is wrong}}", (C, C)), ("5", r"\boxed{\neq 5}", (C, C)),
    ("42", r"first \boxed{41}, no: \boxed{42}", (C, C)), ("42", "draft \\boxed{41}\n\nso it is \\boxed{42}", (C, C)),
    ("42", r"twice \boxed{42} and \boxed{42}", (C, C)), ("42", r"\boxed{42} and then \boxed{43", (U, C)),
    ("42", "the answer is 42", (U, U)), ("8.7e8", r"\boxed{8.7\times10^{8}}", (W, C)),
    ("8.7e8", r"\boxed{8.7 \cdot 10^8 \text{ m/s}}", (W, C)), ("8.7e8", r"\boxed{870000000}", (C, C)),
    ("8.7e8", r"\boxed{8.8\times10^{8}}", (W, W)), ("2.5e-3", r"\boxed{0.0025}", (C, C)),
    ("5", r"\boxed{5\text{ cm}}", (C, C)), ("50", r"\boxed{50\%}", (C, C)), ("7/2", r"\boxed{3\frac{1}{2}}", (C, C)),
    ("1024", r"\boxed{1,024}", (C, C)), (r"\frac{\pi}{3}", r"\boxed{\pi/3}", (C, C)), ("5", r"\boxed{x=5}", (C, C)),
    ("(3,4)", r"\boxed{(4,3)}", (W, W)), ("5", r"<think>\boxed{3}</think> \boxed{5}", (C, C)),
    ("5", r"<think>\boxed{5}</think> It is 6.", (C, C)), ("5", r"\boxed{\text{it is } \boxed{5}}", (C, C)),
    ("5, 6", r"$\boxed{5}$ and $\boxed{6}$", (W, C)), ("6", r"$\boxed{5}$ and $\boxed{6}$", (C, W)),
    ("6", "\\boxed{5}\n\n\\boxed{6}", (C, C)), ("5", r"boxed{5}", (U, U)), ("5", r"\fbox{5}", (U, U)),
    ("5", r"\boxed{5} or equivalently \boxed{5.0}", (C, C)), ("21", r"\boxed{\text{twenty-one}}", (W, C)),
]  # fmt: skip
CHOICES = [
    ("C", r"\boxed{C}", (C, C)), ("C", r"\boxed{(C)}", (C, C)), ("C", r"\boxed{C.}", (W, C)),
    ("C", r"\boxed{\text{C}}", (C, C)), ("C", r"\boxed{ANSWER: C}", (W, U)), ("C", "so\nANSWER: C", (U, U)),
    ("C", "**Answer: C**", (U, U)), ("C", "**ANSWER: C**", (U, U)), ("C", r"\boxed{3}", (W, W)),
    ("3", r"\boxed{C}", (W, W)), ("C", "\\boxed{B}\nANSWER: C", (W, W)), ("C", "the answer is C", (U, U)),
    ("C", "ANSWER: C or D", (U, U)), ("C", r"\boxed{Carbon}", (W, U)),
    ("C", r"\boxed{Option C}", (W, C)), ("C", r"\boxed{choice (C)}", (W, C)),
    ("C", r"\boxed{B} or \boxed{C}", (C, U)), ("C", r"\boxed{C}, \boxed{(C)}", (C, C)), ("C", r"\boxed{B, C}", (W, U)),
    ("C", "\\boxed{B}\n\\boxed{C}", (C, C)), ("C", r"\boxed{option}", (W, U)),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "cases"), [("math", MATH), ("choice", CHOICES)])
def test_written_rules_decide_the_same_answer_in_both_ways(grader, kind, cases):
    outcomes = grader.grade_side_by_side([GradeItem(gold, response, kind) for gold, response, _ in cases])
    found = [
        (gold, response, (outcome.paper, outcome.training))
        for (gold, response, _), outcome in zip(cases, outcomes, strict=True)
    ]
    assert found == cases


@pytest.mark.parametrize("scheme", list(Scheme))
def test_overlong_answer_is_unparsed_by_every_scheme(grader, scheme):
    assert grader.grade([GradeItem("5", rf"\boxed{{{'5' * 5000}}}", "math")], scheme) == [U]


PROGRAMS = [
    "__import__('os').system('touch EXECUTED')", "eval(compile('open(\"EXECUTED\",\"w\")','','exec'))",
    "a.__class__.__mro__[1].__subclasses__()", r"\input{/etc/passwd}",
]  # fmt: skip


def test_no_scheme_runs_an_answer(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with AnswerGrader() as here:
        found = here.grade_side_by_side([GradeItem("x + 1", rf"\boxed{{{program}}}", "math") for program in PROGRAMS])
    assert not any(tmp_path.iterdir())
    assert all(C not in (own.paper, own.training) for own in found)


OUTCOMES = {15: "b5c9d9c4938f1126"}
# Math-Verify's own tests, as far as they compare one gold answer with the content of one box.
SUITE = json.loads((Path(__file__).parent / "math_verify_cases.json").read_text(encoding="utf-8"))["cases"]


@pytest.fixture(scope="module")
def of_suite(grader):
    items = [GradeItem(gold, rf"\boxed{{{answer}}}", "math") for gold, answer, _ in SUITE]
    return [*zip(items, grader.grade_side_by_side(items), strict=True)]


def test_training_agrees_with_math_verifys_tests_as_often_as_math_verify_alone(of_suite):
    by_training = [outcome.training is C for _, outcome in of_suite]
    assert len(of_suite) == 179
    # Math-Verify alone, `bench.grading.verify_alone`, agrees with 173 of them.
    assert sum(map(bool.__eq__, by_training, [is_equal for _, _, is_equal in SUITE])) >= 173


def test_changed_outcomes_raise_the_version_of_the_rules(grader, of_suite):
    """On the cases above, those of Math-Verify's own tests, and some written pairs, which have a test of their own."""
    items = [GradeItem(gold, text, "math") for gold, text, _ in MATH]
    items += [GradeItem(gold, text, "choice") for gold, text, _ in CHOICES]
    items += [GradeItem(gold, rf"\boxed{{{answer}}}", "math") for gold, answer, _ in WRITTEN_PAIRS[::10]]
    outcomes = [*(outcome for _, outcome in of_suite), *grader.grade_side_by_side(items)]
    found = [[outcome.paper, outcome.training] for outcome in outcomes]
    digest = hashlib.sha256(json.dumps(found).encode()).hexdigest()[:16]
    assert OUTCOMES.get(GRADING_RULES) == digest, "raise GRADING_RULES in jobs/tasks/grading/answer_grader.py"


def test_the_version_says_which_rules_and_libraries_decided(monkeypatch):
    def fresh():
        grader_version.cache_clear()
        return grader_version()

    before = fresh()
    assert before.startswith(f"{GRADING_RULES}-")
    with monkeypatch.context() as other:
        other.setattr(answer_grader, "version", lambda _library: "0")
        assert fresh() != before
    assert fresh() == before
