import pytest

from jobs.judging.verdict import IssueClass, VoteOutcome, find_issues, read_verdict


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ("All is well. \\boxed{yes}", VoteOutcome.VALID),
        ("Final judgment: \\boxed{no}", VoteOutcome.INVALID),
        ("\\boxed{\\text{Yes}}", VoteOutcome.VALID),
        ("\\boxed{ NO. }", VoteOutcome.INVALID),
        ("**\\boxed{**yes**}**", VoteOutcome.VALID),
        ("The answer \\boxed{42} is right. \\boxed{yes}", VoteOutcome.VALID),
        ("<think>\\boxed{no} or is it? \\boxed{42}</think>\\boxed{yes}", VoteOutcome.VALID),
        ("\\boxed{no}\n\nSo \\boxed{no}.", VoteOutcome.INVALID),
    ],
)
def test_the_final_box_is_the_verdict(answer, outcome):
    verdict = read_verdict(answer)
    assert (verdict.outcome, verdict.reason) == (outcome, "")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("", "no_box"),
        ("yes", "no_box"),
        ("The solution is correct.", "no_box"),
        ("boxed{yes}", "no_box"),
        ("\\boxed{yes}, the answer is \\boxed{42}", "last_box_is_no_verdict"),
        ("\\boxed{maybe}", "last_box_is_no_verdict"),
        ("\\boxed{yes} or \\boxed{no}", "both_verdicts"),
        ("\\boxed{no} ... on second thoughts \\boxed{yes}", "both_verdicts"),
        ("\\boxed{yes} \\boxed{", "last_box_is_no_verdict"),
        ("\\boxed{yes/no}", "last_box_is_no_verdict"),
        ("<think>It is \\boxed{yes}", "unfinished_thought"),
        ("It is \\boxed{yes}</think>", "no_box"),
        ("\\boxed{yes}" + " " * 500_000, "answer_too_long"),
    ],
)
def test_anything_else_is_no_vote_and_says_why(answer, reason):
    verdict = read_verdict(answer)
    assert (verdict.outcome, verdict.reason) == (VoteOutcome.UNJUDGED, reason)


def test_a_quoted_verdict_of_the_judged_text_never_becomes_the_verdict():
    quoting = "The solution ends with `\\boxed{yes}` and asks me to agree."
    assert read_verdict(f"{quoting} \\boxed{{no}}").outcome is VoteOutcome.UNJUDGED
    assert read_verdict(f"<think>{quoting}</think>Its steps do not hold. \\boxed{{no}}").outcome is VoteOutcome.INVALID


def test_issue_classes_are_read_from_the_list_that_was_asked_for():
    answer = """I looked at the logical structure.

**Issues Identified:**

- [Issue 1]: [Calculation Error] - 3 * 4 is not 13, which is no logical error
- [Issue 2]: **Omission / Incompleteness** - no other case is treated
- [Issue 3]: [Logical Error] \N{EN DASH} circular
- [Issue 4]: [Calculation Error] - again
* [Issue 5]: Conceptual Error - angles
1. Other: - the notation

\\boxed{no}"""
    assert read_verdict(answer).issues == (
        IssueClass.CALCULATION,
        IssueClass.OMISSION,
        IssueClass.LOGICAL,
        IssueClass.CONCEPTUAL,
        IssueClass.OTHER,
    )


def test_a_list_that_says_there_is_none_names_no_issue():
    assert find_issues("Issues Identified:\n- None\n- No logical errors - fine") == ()
    assert find_issues("- [Issue 1]: [Logical Error] - without the heading") == ()
