import json
import sys
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest

from exgrpo.jobs.tasks.word_problems.oracle import MAX_CHARS, ChainVerdict, find_boxes, judge_response
from exgrpo.jobs.tasks.word_problems.problem import StoryProblem
from exgrpo.jobs.tasks.word_problems.walk import FaultKind

BOXES = StoryProblem.read(
    "Nora packs 3 boxes with 12 candles in each box. She has 5 candles left over. How many candles does Nora have?",
    [3, 12, 5],
    "a * b + c",
)
UNKNOWNS = StoryProblem.read(
    "Two friends have 34 marbles together. Rosa has 8 more than Tim. How many has Tim?", [34, 8], "(a - b) / 2",
    ["(a + b) / 2"],
)  # fmt: skip
BAGS = StoryProblem.read("Tim has 2 bags with 2 nuts each. How many nuts?", [2, 2], "a * b")
SALE = StoryProblem.read("A jacket for $80 is 25% cheaper. What does it cost now?", [80, 25], "a - a * b / 100")


@pytest.mark.parametrize(
    "chain",
    [
        r"3 * 12 = 36. 36 + 5 = 41. \boxed{41}", r"Three times twelve is thirty-six, and 36 plus 5 is 41. \boxed{41}",
        r"The boxes hold 36 candles. With 5 more that makes 41. \boxed{41}",
        "candles = 3\N{MULTIPLICATION SIGN}12 + 5 = 36 + 5 = 41 \\boxed{41}",
        r"\boxed{41} since 36 + 5 = 41, where 36 = 3 * 12.",
        r"3 \cdot 12 = 3 \cdot 10 + 3 \cdot 2 = 30 + 6 = 36 and 36 + 5 = 41. \boxed{41}",
        "3 \N{MULTIPLICATION SIGN} 12 = 36 + 5 = 41 \\boxed{41}", r"Boxes - 3 * 12 = 36. Then 36 + 5 = 41. \boxed{41}",
    ],
)  # fmt: skip
def test_a_chain_that_computes_the_answer_is_valid_in_any_notation(chain):
    assert judge_response(BOXES, chain).verdict is ChainVerdict.VALID


@pytest.mark.parametrize(
    ("chain", "kind", "step"),
    [
        (r"3 * 12 = 34. 34 + 5 = 39. \boxed{39}", FaultKind.FALSE, "3 * 12 = 34"),
        (r"3 * 12 = 36. 36 + 6 = 41. \boxed{41}", FaultKind.FALSE, "36 + 6 = 41"),
        (r"29 + 12 = 41. \boxed{41}", FaultKind.FROM_NOWHERE, "29 + 12 = 41"),
        (r"There are 29 of them. 29 + 12 = 41. \boxed{41}", FaultKind.FROM_NOWHERE, "29"),
        (r"41 - 5 = 36, 36 / 12 = 3, as in the story. \boxed{41}", FaultKind.FROM_NOWHERE, "41 - 5 = 36"),
        (r"3 + 12 = 15. 15 + 5 = 20. \boxed{20}", FaultKind.OTHER_COMPUTATION, "3 + 12 = 15"),
        (r"3 * 12 = 36. \boxed{36}", FaultKind.NO_ANSWER, r"\boxed{36}"),
        (r"3 * 12 = 36. 36 + 5 = 41. \boxed{7}", FaultKind.FROM_NOWHERE, r"\boxed{7}"),
        (r"3 * 12 = 36. 36 + 5 = 41.", FaultKind.NO_ANSWER, ""),
    ],
)
def test_an_invalid_chain_has_its_first_wrong_step_named(chain, kind, step):
    judgement = judge_response(BOXES, chain)
    assert judgement.verdict is ChainVerdict.INVALID
    assert judgement.first_fault.kind is kind
    assert chain[judgement.first_fault.start : judgement.first_fault.end] == step


@pytest.mark.parametrize("chain", ["", r"\boxed{41}", r"So the answer is \boxed{41}.", "Boxes, boxes, 12 and 5!"])
def test_without_any_step_a_response_is_unreadable(chain):
    judgement = judge_response(BOXES, chain)
    assert judgement.verdict is ChainVerdict.UNREADABLE
    assert judgement.is_valid is None


@pytest.mark.parametrize(
    ("problem", "chain", "is_valid"),
    [
        (UNKNOWNS, r"x + x + 8 = 34. 2x = 26. x = 13. \boxed{13}", True),
        (UNKNOWNS, r"Let r be Rosa's. r + t = 34, r - t = 8, so 2t = 26 and t = 13. \boxed{13}", True),
        (UNKNOWNS, r"x + x + 8 = 34. 2x = 42. x = 21. \boxed{21}", False),
        (UNKNOWNS, r"x + x + 8 = 34. So x = 13. \boxed{13}", False),
        (UNKNOWNS, r"Tim has 13. 13 + 8 = 21, 13 + 21 = 34. \boxed{13}", False),
        (SALE, r"25% of 80 is 20. 80 - 20 = 60. \boxed{60}", True),
        (SALE, "0.75 \N{MULTIPLICATION SIGN} 80 = 60 \\boxed{\\$60}", True),
        (SALE, r"\frac{25}{100} \times 80 = 20, 80 - 20 = 60 \boxed{60.00}", True),
        (SALE, r"A quarter of 80 is 20, and 80 - 20 = 60. \boxed{60}", True), (SALE, r"80 - 25 = 55 \boxed{55}", False),
        (SALE, r"80 - 20 = 60 \boxed{60}", True), (BAGS, r"2 + 2 = 4. \boxed{4}", False),
        (BAGS, r"2 * 2 = 4. \boxed{4}", True), (BOXES, r"\boxed{5} 3 * 12 = 36. 36 + 5 = 41. \boxed{41}", True),
    ],
)  # fmt: skip
def test_unknowns_percentages_and_fractions_are_read_and_right_by_luck_is_not_valid(problem, chain, is_valid):
    judgement = judge_response(problem, chain)
    assert judgement.is_valid is is_valid
    assert judgement.is_correct or not is_valid


def test_code_is_checked_but_is_no_chain_of_thought():
    steps = "3 * 12 = 36, 36 + 5 = 41.\n"
    right = "```python\nn = 3 * 12\nn += 5\nprint(n)\n```\n"
    wrong = right.replace("+= 5", "-= 5")
    endless = "```python\nwhile True:\n    pass\n```\n"
    assert judge_response(BOXES, steps + right + r"\boxed{41}").is_valid
    assert judge_response(BOXES, steps + endless + r"\boxed{41}").is_valid
    assert judge_response(BOXES, steps + wrong + r"\boxed{41}").is_valid is False
    code_only = judge_response(BOXES, right + r"\boxed{41}")
    assert (code_only.is_correct, code_only.has_code, code_only.is_valid) == (True, True, False)


@pytest.mark.parametrize(
    ("content", "value"),
    [
        ("41", 41), (r"\$34.50", Fraction(69, 2)), (r"x = 8 \text{ cows}", 8), (r"\frac{3}{4}", Fraction(3, 4)),
        ("1,250", 1250), ("-5", -5), ("", None), ("none", None), ("1/0", None),
    ],
)  # fmt: skip
def test_boxes_hold_one_number(content, value):
    (box,) = find_boxes(f"\\boxed{{{content}}}")
    assert box.value == value


HOSTILE = [
    "(", "1+", "{", "\\frac{", "9", "x=", "```\n", "\\boxed{", "two ", "9,999", "one hundred hundred ", "1/0 = ",
    "3 * 12 = 36. ", "((1+2)*", "half of ",
]  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
def test_reading_is_linear_in_the_length_of_hostile_text(piece):
    shorter, longer = (count_calls((piece * length)[:length]) for length in (1000, 3000))
    assert longer < 3.3 * shorter + 2000


def test_what_is_too_long_is_not_read():
    assert judge_response(BOXES, "3 * 12 = 36. " * MAX_CHARS).verdict is ChainVerdict.UNREADABLE


def count_calls(text: str) -> int:
    counter: Counter[str] = Counter()
    sys.setprofile(lambda _frame, event, _argument: counter.update([event]))
    try:
        judge_response(BOXES, text)
    finally:
        sys.setprofile(None)
    return counter.total()


def rows_of(name):
    return map(json.loads, (Path(__file__).parent / name).read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize(("is_kept_apart", "share_of_steps"), [(False, 0.95), (True, 0.85)])
def test_the_oracle_agrees_with_both_halves_of_three_hundred_hand_written_chains(is_kept_apart, share_of_steps):
    """It was built with the chains of stories with odd numbers only; those of even numbers were kept apart.

    Labels: valid, if the box is right and every step is true and follows from the story or from earlier steps, at most
    one operation at a time done in the head; invalid with the first wrong step (where two readings are fair, a part of
    the text that holds both); unreadable, if there is no step at all.
    """
    problems = {
        row["story"]: StoryProblem.read(row["text"], row["numbers"], row["solution"], row.get("also", ()))
        for row in rows_of("hand_written_stories.jsonl")
    }
    chains = [row for row in rows_of("hand_written_chains.jsonl") if (row["story"] % 2 == 0) == is_kept_apart]
    assert len(chains) == 150
    found = [judge_response(problems[row["story"]], row["chain"]) for row in chains]
    pairs = [(item.verdict, row["label"]) for item, row in zip(found, chains, strict=True)]
    for outcome in (ChainVerdict.VALID, ChainVerdict.INVALID):
        num_right = pairs.count((outcome, outcome))
        assert num_right >= 0.95 * sum(given == outcome for given, _ in pairs)
        assert num_right >= 0.95 * sum(label == outcome for _, label in pairs)
    hits = []
    for item, row in zip(found, chains, strict=True):
        if item.first_fault is not None and row["label"] == ChainVerdict.INVALID:
            start = row["chain"].index(row["first_wrong_step"])
            end = start + len(row["first_wrong_step"])
            hits.append(item.first_fault.start < end and start < item.first_fault.end)
    assert sum(hits) >= share_of_steps * len(hits)
