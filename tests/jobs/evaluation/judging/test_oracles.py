import pytest

from exgrpo.jobs.evaluation.judging.items import JudgedItem
from exgrpo.jobs.evaluation.judging.oracles import judge_item
from exgrpo_core.recording.rows import VoteOutcome


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("6;a*2=2;b*9=8;\\boxed{8}", ""), ("6;a*2=2;b*9=7;\\boxed{8}", "Step 2 of 2 is b*9=7, expected b*9=8"),
        ("6;a*2=2;b+9=1;\\boxed{8}", "Step 2 of 2 is b+9=1, expected b*9=8"),
        ("6;a*2=2;", "Step 2 of 2 is missing, expected b*9=8"), ("5;a*2=2;b*9=8;\\boxed{8}", "The start is not 6"),
        ("6;a*2=2;b*9=8;x\\boxed{8}", "All steps are correct, but not what follows them"),
    ],
)  # fmt: skip
def test_the_first_wrong_step_of_a_chain_is_named(text, fault):
    verdict = judge_item(JudgedItem("1", "Q6a*2b*9:", text, details={"modulus": 10}))
    assert (verdict.fault, verdict.outcome is VoteOutcome.VALID) == (fault, not fault)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (r"3 * 12 = 36. 36 + 5 = 41. \boxed{41}", ""),
        (r"3 * 12 = 38. 36 + 5 = 41. \boxed{41}", "3 * 12 = 38 is false"),
        (
            r"3 * 12 = 36. 36 + 7 = 43. \boxed{41}",
            "36 + 7 = 43 uses a number that is neither given nor computed before",
        ),
    ],
)
def test_the_first_wrong_step_of_a_story_is_quoted(text, fault):
    details = {
        "data_source": "word_problems", "form": "boxes", "numbers": ["3", "12", "5"], "also": [],
        "question": "Nora packs 3 boxes with 12 candles each. She has 5 candles left over. How many has Nora?",
        "steps": [["a * b", "candles"], ["p + c", "candles"]],
    }  # fmt: skip
    assert judge_item(JudgedItem("1", details["question"], text, details=details)).fault == fault
