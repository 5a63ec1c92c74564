from jobs.analysis.cases import choose_cases, lay_out_case
from tests.jobs.analysis.facts import fact


def test_the_surest_and_the_least_sure_correct_response_of_a_step_are_set_side_by_side():
    rows = [
        fact(1, mean_entropy=0.2),
        fact(2, mean_entropy=0.1),
        fact(3, mean_entropy=0.9, is_correct=False),
        fact(4, mean_entropy=0.5, is_valid=False, has_code=True),
    ]
    [choice] = choose_cases(rows, 3)
    case = lay_out_case(choice, {2: "short", 4: "```python"}, "What is 1 + 1?", "2")
    assert (case.low.trajectory_id, case.high.trajectory_id) == (2, 4)
    assert (case.low.text, case.high.text) == ("short", "```python")
    assert (case.low.is_valid, case.high.is_valid, case.high.reward) == (True, False, 1.0)
    assert (case.question, case.truth) == ("What is 1 + 1?", "2")


def test_a_case_whose_verdicts_differ_comes_before_a_wider_gap_and_a_question_comes_once():
    rows = [
        fact(1, question_index=1, mean_entropy=0.1),
        fact(2, question_index=1, mean_entropy=0.9),
        fact(3, question_index=2, mean_entropy=0.1),
        fact(4, question_index=2, mean_entropy=0.2, is_valid=False),
        fact(5, question_index=2, mean_entropy=0.1, step=2),
        fact(6, question_index=2, mean_entropy=0.8, step=2),
        fact(7, question_index=3),
    ]
    assert [choice.low.trajectory_id for choice in choose_cases(rows, 5)] == [3, 1]
    assert len(choose_cases(rows, 1)) == 1
