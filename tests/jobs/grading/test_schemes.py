import re

import pytest

from jobs.evaluation.protocols import find_protocol
from jobs.evaluation.questions import load_benchmark
from jobs.grading.outcomes import Outcome
from jobs.grading.pool import AnswerGrader
from jobs.grading.schemes import GradeItem, Scheme, disputed, grader_version
from jobs.specs.evaluation import BenchmarkChoice

C, W, U = Outcome.CORRECT, Outcome.WRONG, Outcome.UNPARSED
MATH = [
    # what is compared, and what paper, training and corrected say
    ("42", r"\boxed{42}", (C, C, C)),
    ("42", r"\boxed{6*7}", (C, C, W)),
    ("42", r"\boxed{6 - 1}", (W, W, W)),
    ("1024", r"\boxed{2^{10}}", (C, C, C)),
    ("120", r"\boxed{5!}", (C, C, C)),
    ("6", r"\boxed{\binom{4}{2}}", (C, C, C)),
    ("1/2", r"\boxed{\left(\frac12\right)}", (C, C, C)),
    ("1", r"\boxed{\frac3{3}}", (C, C, C)),
    ("-1/2", r"\boxed{\frac{1}{-2}}", (C, C, C)),
    ("5", r"\boxed{(5)}", (C, C, C)),
    ("5", r"\boxed{{5}}", (C, C, C)),
    ("5", r"\boxed{--5}", (C, C, C)),
    ("16386.20", r"\boxed{\$16,\!386.20}", (C, C, C)),
    ("1000", r"\boxed{1 000}", (C, W, C)),
    ("12", r"\boxed{1\ 2}", (W, W, W)),
    ("32349", r"\boxed{32, 349}", (C, W, W)),
    ("7/2", r"\boxed{3 1/2}", (C, W, C)),
    ("31/2", r"\boxed{3 1/2}", (C, W, W)),
    ("5", r"\boxed{5K}", (W, W, W)),
    ("5000", r"\boxed{5K}", (W, W, C)),
    ("5", r"\boxed{5\text{ million}}", (C, C, W)),
    ("5000000", r"\boxed{5\text{ million}}", (W, W, C)),
    ("5 m", r"\boxed{5 km}", (C, C, W)),
    (r"5\text{ m}", r"\boxed{500\text{ cm}}", (W, W, C)),
    (r"10\text{ m/s}", r"\boxed{36\text{ km/h}}", (W, W, C)),
    (r"15\text{ cm}^2", r"\boxed{15\text{ cm}}", (C, C, W)),
    ("5 m", r"\boxed{5}", (C, C, C)),
    (r"5\text{ yuan}", r"\boxed{5\text{ apples}}", (C, C, C)),
    ("5m", r"\boxed{5}", (C, C, W)),
    ("5m", r"\boxed{5 m}", (C, C, C)),
    ("0.5", r"\boxed{0.5\%}", (C, W, W)),
    ("0.5", r"\boxed{50\%}", (C, C, C)),
    (r"50\%", r"\boxed{0.5}", (C, C, C)),
    (r"50\%", r"\boxed{50}", (C, C, C)),
    ("1010_2", r"\boxed{1010_3}", (C, C, W)),
    ("1010_2", r"\boxed{1010}", (C, C, C)),
    ("204_5", r"\boxed{54}", (W, W, W)),
    ("(1,2)", r"\boxed{\{1,2\}}", (C, C, W)),
    (r"\{1,2\}", r"\boxed{(1,2)}", (C, C, W)),
    (r"\{1,2\}", r"\boxed{2,1}", (C, C, C)),
    ("(1,2)", r"\boxed{1,2}", (C, C, C)),
    ("(1,2)", r"\boxed{2,1}", (W, W, W)),
    ("5", r"\boxed{5 \text{ is wrong}}", (C, C, U)),
    ("5", r"\boxed{\neq 5}", (C, C, U)),
    ("42", r"first \boxed{41}, no: \boxed{42}", (C, C, U)),
    ("42", "draft \\boxed{41}\n\nso it is \\boxed{42}", (C, C, C)),
    ("42", r"twice \boxed{42} and \boxed{42}", (C, C, C)),
    ("42", r"\boxed{42} and then \boxed{43", (U, C, C)),
    ("42", "the answer is 42", (U, U, U)),
    ("8.7e8", r"\boxed{8.7\times10^{8}}", (W, W, C)),
    ("8.7e8", r"\boxed{8.7 \cdot 10^8 \text{ m/s}}", (W, W, C)),
    ("8.7e8", r"\boxed{870000000}", (C, W, C)),
    ("8.7e8", r"\boxed{8.8\times10^{8}}", (W, W, W)),
    ("2.5e-3", r"\boxed{0.0025}", (C, W, C)),
    ("5", r"\boxed{5\text{ cm}}", (C, C, C)),
    ("50", r"\boxed{50\%}", (C, C, C)),
    ("7/2", r"\boxed{3\frac{1}{2}}", (C, C, C)),
    ("1024", r"\boxed{1,024}", (C, C, C)),
    (r"\frac{\pi}{3}", r"\boxed{\pi/3}", (C, C, C)),
    ("5", r"\boxed{x=5}", (C, C, C)),
    ("(3,4)", r"\boxed{(4,3)}", (W, W, W)),
]
CHOICES = [
    ("C", r"\boxed{C}", (C, C, C)),
    ("C", r"\boxed{(C)}", (C, C, C)),
    ("C", r"\boxed{C.}", (W, C, C)),
    ("C", r"\boxed{\text{C}}", (C, C, C)),
    ("C", r"\boxed{ANSWER: C}", (W, U, C)),
    ("C", "so\nANSWER: C", (U, U, C)),
    ("C", "**Answer: C**", (U, U, U)),
    ("C", "**ANSWER: C**", (U, U, C)),
    ("C", r"\boxed{3}", (W, W, C)),
    ("3", r"\boxed{C}", (W, W, C)),
    ("C", "\\boxed{B}\nANSWER: C", (W, W, U)),
    ("C", "the answer is C", (U, U, U)),
    ("C", "ANSWER: C or D", (U, U, U)),
    ("C", r"\boxed{Carbon}", (W, U, U)),
]


@pytest.fixture(scope="module")
def grader():
    with AnswerGrader(seconds_per_answer=5.0) as shared:
        yield shared


@pytest.mark.parametrize(("kind", "cases"), [("math", MATH), ("choice", CHOICES)])
def test_written_rules_decide_the_same_answer_in_three_ways(grader, kind, cases):
    outcomes = grader.grade_side_by_side([GradeItem(gold, response, kind) for gold, response, _ in cases])
    found = [
        (gold, response, (outcome.paper, outcome.training, outcome.corrected))
        for (gold, response, _), outcome in zip(cases, outcomes, strict=True)
    ]
    assert found == cases


def test_every_gold_in_e_notation_accepts_powers_of_ten_where_corrected(grader, shared_dir):
    source = str(shared_dir / "data" / "benchmarks" / "test.id.parquet")
    loaded = load_benchmark(BenchmarkChoice(name="minerva", source=source), find_protocol("minerva"))
    golds = [question.answer for question in loaded.questions if re.fullmatch(r"-?[\d.]+e-?\d+", question.answer)]
    items = []
    for gold in golds:
        mantissa, _, exponent = gold.partition("e")
        items.append(GradeItem(gold, rf"\boxed{{{mantissa}\times10^{{{exponent}}}}}", "math"))
    outcomes = grader.grade_side_by_side(items)
    assert len(golds) == 58
    assert {outcome.corrected for outcome in outcomes} == {C}
    assert {item.training for item in outcomes} == {W}


def test_answers_on_which_the_schemes_differ_are_listed(grader):
    items = [GradeItem("42", response, "math") for response in (r"\boxed{42}", r"\boxed{6*7}", r"\boxed{41}", "none")]
    assert disputed(grader.grade_side_by_side(items)) == [1]


@pytest.mark.parametrize("scheme", list(Scheme))
def test_overlong_answer_is_unparsed_by_every_scheme(grader, scheme):
    assert grader.grade([GradeItem("5", rf"\boxed{{{'5' * 5000}}}", "math")], scheme) == [U]


@pytest.mark.parametrize(
    "answer",
    [
        "__import__('os').system('touch EXECUTED')",
        "eval(compile('open(\"EXECUTED\",\"w\")','','exec'))",
        "a.__class__.__mro__[1].__subclasses__()",
        r"\input{/etc/passwd}",
    ],
)
def test_no_scheme_runs_an_answer(tmp_path, monkeypatch, answer):
    monkeypatch.chdir(tmp_path)
    with AnswerGrader() as here:
        (own,) = here.grade_side_by_side([GradeItem("x + 1", rf"\boxed{{{answer}}}", "math")])
    assert not any(tmp_path.iterdir())
    assert C not in (own.paper, own.training, own.corrected)


def test_grader_version_is_the_same_each_time_it_is_asked():
    assert len(grader_version()) == 12
    assert grader_version() == grader_version()
