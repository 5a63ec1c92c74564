import time

import pytest

from exgrpo.jobs.tasks.grading.code_rules import CODE_RULES, bits_to_rules, find_rules, mark_code

pytestmark = pytest.mark.slow

FITTING = {
    "R1": ["So:```py\nx\n```", "~~~ python3\nx\n~~~", "6;a*2=2;```python\nx=6\n```\n", "```Python\nx\n```"],
    "R2": ["```\nimport math\n```", "```\n\ndef f(x):\n  return x\n```", "~~~\nfor i in range(3):\n  pass\n~~~"],
    "R3": ["def area(a, b):", "    def f(self) -> int:", "async def g(): return 1"],
    "R4": ["class Point:", "class Shape(Base):  # a shape"],
    "R5": ["import sympy as sp", "import os, sys", "  import numpy.linalg"],
    "R6": ["from math import gcd", "from sympy import symbols, Eq", "from a.b import *"],
    "R7": ["print(total)", "for x in y: print(x)", "`print(3)`"],
    "R8": ["n = len(values)", "if len('abc') == 3:", "return len([1, 2])"],
    "R9": ["for i in range(1, 5):", "total = sum(range(10))", "values = range(3)"],
    "R10": ["for i in range(10):", "    for a, b in pairs:  # all", "for i, (a, b) in enumerate(ps):"],
    "R11": ["if n % 2 == 0:", ">>> if n > 3:", "elif is_prime(n):", "    if x > 3:"],
    "R12": ["while n > 0:", "    while True:"],
    "R13": ["try:", "    try:  # may fail"],
    "R14": ["except ValueError:", "except (TypeError, KeyError) as error:", "except:"],
    "R15": ["primes = [2, 3, 5]", "rows = [", "xs=[i for i in ys]  # all", ">>> xs = [1]"],
    "R16": ["ages = {'Ann': 3}", "memo={}", "table = {"],
    "R17": ["x, y = sp.symbols('x y')", "solution = sp.solve(eq, x)", "values.append(3)", "print(np.array([1]))"],
}

PROSE = [
    "If n is even, then n = 2k for some k: we are done.", "if $n \\% 2 = 0$ then:", "For all x in S we have x > 0.",
    "for each x in the set, the value is 3:", "While this holds for n = 1, it fails for n = 2:",
    "We try: n = 3 works.", "Everything except: nothing.", "The class of squares: 1, 4, 9.",
    "From this import duty we subtract 10.", "import duty is 10%",
    "The range(s) of f and g agree, and the len of the road is 3.", "A = [0, 1] \\cup [2, 3]",
    "Let $S = \\{1, 2, 3\\}$.", "S = {1, 2, 3}", "i.e. (a+b)(c+d) and e.g. f(x).", "\\text{Area}(ABC) = 3.",
    "fig.(3) shows it; see Prop.4.(b).", "The blueprint(s) were lost.", "from A to B, import C.", ">>> so x > 3",
    "For (a, b) in S we have a < b:",
]  # fmt: skip


@pytest.mark.parametrize("rule_id", [rule.rule_id for rule in CODE_RULES])
def test_the_rule_finds_what_its_cue_says(rule_id):
    assert [text for text in FITTING[rule_id] if rule_id not in find_rules(text)] == []


@pytest.mark.parametrize("text", PROSE)
def test_prose_fits_no_rule(text):
    assert find_rules(text) == ()


def test_the_end_of_a_labelled_fence_opens_none():
    assert "R2" not in find_rules("```output\n[25]\n```\nfor this reason we are done.")
    assert "R2" in find_rules("```output\n[25]\n```\nprose\n```\nwhile x\n```")


@pytest.mark.parametrize("keyword", ["def", "class", "import", "from", "if", "for", "while", "try", "with"])
def test_an_unlabelled_fence_that_begins_with_any_of_the_papers_keywords_is_code(keyword):
    assert "R2" in find_rules(f"So:\n```\n\n  {keyword} x\n```\nDone.")
    assert "R2" not in find_rules(f"So:\n```text\n{keyword} x\n```\nDone.")
    assert "R2" not in find_rules(f"So:\n```\n{keyword}mer x\n```\nDone.")


@pytest.mark.parametrize(
    "text",
    ["```\n" * 250_000,
     "```" * 300_000, " " * 1_000_000, "if " + "(" * 500_000, "import a, " * 100_000, "a." * 400_000 + "(",
     "\n".join(["for a, b in " + "x" * 500] * 2_000), "x = [" * 200_000, "x = {" * 200_000, "def f(" * 150_000,
     "from a import " + "b, " * 300_000],
)  # fmt: skip
def test_a_megabyte_made_to_be_hard_is_searched_in_seconds(text):
    started_at = time.process_time()
    for rule in CODE_RULES:
        rule.matches(text)
    assert time.process_time() - started_at < 5.0


def test_a_text_carries_its_rules_as_bits_and_has_code_by_them_where_the_task_does_not_say():
    texts = ["```python\nimport math\nprint(math.pi)\n```", "It is 3.", "print(3)"]
    rows = [{"text": text, "has_code": has_code} for text, has_code in zip(texts, (None, None, False), strict=True)]
    mark_code(rows)
    assert [bits_to_rules(row["code_rules"]) for row in rows] == [("R1", "R5", "R7"), (), ("R7",)]
    assert [row["has_python_block"] for row in rows] == [True, False, False]
    assert [row["has_code"] for row in rows] == [True, False, False]
