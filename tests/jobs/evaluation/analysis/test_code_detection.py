import pytest

from exgrpo.db.rows.chains_of_thought import RuleCount
from exgrpo.jobs.evaluation.analysis.report import tabulate_counts
from exgrpo.jobs.tasks.grading.code_rules import find_code_blocks, find_rules, has_python_block, is_python, mark_code

# The code of the paper's three cases, as short as tells them apart.
CASE_1 = "```python\nimport sympy as sp\nx, y = sp.symbols('x y')\nprint(x_sol_parity, y_sol_parity)\n```\n"
CASE_2 = "```python\nsum_descending = sum(range(-100, 0))\nprint(total_sum)\n```\n```output\n203\n```"
CASE_3 = "```python\nAB = sp.Symbol('AB', positive=True)\nAB_value = sp.solve(equation, AB)\nprint(AB_value)\n```"


@pytest.mark.parametrize(
    ("text", "rule_ids"),
    [(CASE_1, ("R1", "R5", "R7", "R17")), (CASE_2, ("R1", "R7", "R9")), (CASE_3, ("R1", "R7", "R17"))],
)
def test_the_code_of_the_papers_cases_is_found(text, rule_ids):
    assert find_rules("The answer is 3.\n\n" + text) == rule_ids
    assert has_python_block(text)


def test_code_without_its_fence_is_still_found_and_one_never_closed_is_read_to_the_end():
    assert find_rules("We check:\nimport sympy as sp\nprint(sp.solve(e, x))")
    assert [block.source for block in find_code_blocks("```python\nx = 1\n")] == ["x = 1\n"]


def test_a_fence_counts_if_it_is_labelled_python_or_holds_python_that_does_something():
    text = "```python\n# we can\nverify using a simple snippet\n```"
    assert has_python_block(text)
    assert not find_code_blocks(text)[0].is_python
    assert has_python_block("```\nx = 3\n```")
    assert has_python_block("```\n>>> s = 0\n>>> for i in range(3):\n...     s += i\n3\n```")
    for inside in ("\n3 + 4", "\nthe answer is 3", "text\nx = 3", "\n>>> so it is"):
        assert not has_python_block(f"```{inside}\n```")


@pytest.mark.parametrize("source", ["(" * 100_000, "x = '\\d'\n" * 3 + "(", "\x00", "9" * 50_000, "-" * 100_000 + "1"])
def test_python_made_to_be_hard_is_no_python_and_harms_nothing(source):
    assert not is_python(source)


def test_the_table_counts_texts_by_rule_and_once_in_all():
    rows: list[dict] = [{"text": text, "has_code": None} for text in (CASE_1, CASE_2, "No code here.", "Nor here.")]
    mark_code(rows)
    counts = [RuleCount(row["code_rules"], row["has_python_block"], 2, 1) for row in rows]
    for only_correct in (False, True):
        table = tabulate_counts(counts, only_correct=only_correct)
        rates = {line.rule_id: line.rate for line in table.rules}
        assert (rates["R1"], rates["R5"], rates["R4"]) == (0.5, 0.25, 0.0)
        num = 4 if only_correct else 8
        assert (table.num_texts, table.num_any, table.any_rate, table.python_block_rate) == (num, num / 2, 0.5, 0.5)
        assert len(table.rules) == 17
    assert tabulate_counts([]).any_rate == 0.0
