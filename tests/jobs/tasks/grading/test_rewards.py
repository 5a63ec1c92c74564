import dataclasses
from pathlib import Path

import numpy as np
import pytest

from exgrpo.jobs import tasks
from exgrpo.jobs.specs.train import DataSpec
from exgrpo.jobs.tasks.chains.demonstrators import make_tokenizer
from exgrpo.jobs.tasks.chains.question_set import ChainProblem, make_question
from exgrpo.jobs.tasks.grading.answer_grader import AnswerGrader
from exgrpo.jobs.tasks.grading.reward_function import Response
from exgrpo.jobs.tasks.grading.rewards import TASKS, ChainsReward, MathReward
from exgrpo_core.config import RewardKind

pytestmark = pytest.mark.slow

QUESTION = make_question(0, ChainProblem.parse("Q6a*2b*9c-5d*3:", 10), make_tokenizer())
STEPS = "6;a*2=2;b*9=8;c-5=3;d*3=9;"
NO_TOKENS = np.zeros(0, dtype=np.int32)

EXACT, GRADED, CODE = ChainsReward(), ChainsReward(is_graded=True), ChainsReward(code_reward_rate=1.0)
RIGHT_CODE = "```python\nx=(((6*2)*9)-5)*3\nx%=10\nprint(x)\n```\n"
WRONG_CODE = RIGHT_CODE.replace("*3", "*2")


@pytest.mark.parametrize(
    ("rules", "text", "is_truncated", "expected"),
    [
        # what follows: reward, outcome, validity
        (EXACT, STEPS + r"\boxed{9}", False, (1.0, "correct", True)),
        (EXACT, r"6;\boxed{9}", False, (1.0, "correct", False)),
        (EXACT, STEPS + r"\boxed{8}", False, (0.0, "wrong", False)),
        (EXACT, STEPS + "```python\nx=9\nprint(x)\n```\n\\boxed{9}", False, (1.0, "correct", True)),
        (EXACT, STEPS, False, (0.0, "unparsed", False)),
        (EXACT, STEPS + r"\boxed{9}", True, (0.0, "unparsed", False)),
        (GRADED, STEPS + r"\boxed{9}", False, (1.0, "correct", True)),
        (GRADED, STEPS + r"\boxed{8}", False, (0.8, "wrong", False)),
        (GRADED, r"6;a*2=2;b*9=8;c-5=4;d*3=2;\boxed{9}", False, (0.6, "correct", False)),
        (GRADED, r"6;a*2=3;\boxed{8}", False, (0.0, "wrong", False)),
        (GRADED, STEPS, False, (0.8, "unparsed", False)),
        (GRADED, STEPS + r"\boxed{9}", True, (0.0, "unparsed", False)),
        (CODE, RIGHT_CODE + r"\boxed{8}", False, (1.0, "correct", False)),
        (CODE, RIGHT_CODE, False, (1.0, "correct", False)),
        (CODE, RIGHT_CODE + r"\boxed{8}", True, (0.0, "unparsed", False)),
        (CODE, WRONG_CODE + r"\boxed{8}", False, (0.0, "wrong", False)),
        (CODE, WRONG_CODE + r"\boxed{9}", False, (1.0, "correct", False)),
        (CODE, r"\boxed{8}", False, (0.0, "wrong", False)),
    ],
)
def test_chains_are_rewarded_for_the_answer_for_each_step_or_for_code(rules, text, is_truncated, expected):
    """And judged by the oracle, whatever is rewarded."""
    [verdict] = rules.grade([QUESTION], [Response(text, NO_TOKENS, is_truncated)])
    assert (verdict.reward, verdict.outcome, verdict.is_valid) == (pytest.approx(expected[0]), *expected[1:])
    assert verdict.has_code == ("```" in text)


def test_code_is_rewarded_on_about_the_share_of_questions_that_is_asked_for():
    questions = [dataclasses.replace(QUESTION, question_id=f"{number:016x}") for number in range(400)]
    responses = [Response(RIGHT_CODE, NO_TOKENS, False)] * 400
    rewards = [verdict.reward for verdict in ChainsReward(code_reward_rate=0.25).grade(questions, responses)]
    assert 0.2 < np.mean(rewards) < 0.3
    assert rewards == [verdict.reward for verdict in ChainsReward(code_reward_rate=0.25).grade(questions, responses)]


def test_mathematics_and_choices_are_told_apart_by_the_question():
    questions = [
        dataclasses.replace(QUESTION, answer="B", metadata={"answer_kind": "choice"}),
        dataclasses.replace(QUESTION, answer="5.0", metadata={"answer_kind": "math"}),
        dataclasses.replace(QUESTION, answer="5.0", metadata={"answer_kind": "math"}),
    ]
    texts = [r"\boxed{B) foo}", r"\boxed{5}", r"\boxed{4}"]
    with AnswerGrader() as grader:
        verdicts = MathReward(grader).grade(questions, [Response(text, NO_TOKENS, True) for text in texts])
    assert [(v.reward, v.outcome, v.is_valid) for v in verdicts] == [
        (1.0, "correct", None),
        (1.0, "correct", None),
        (0.0, "wrong", None),
    ]


TOKENIZER = make_tokenizer()


def questions_of(name, count=20):
    return TASKS[name].make_questions(DataSpec(max_operations=6), count, 0, TOKENIZER)


def test_every_folder_with_a_question_set_is_a_task():
    folders = {path.parent.name for path in Path(tasks.__file__).parent.glob("*/question_set.py")}
    assert folders == TASKS.keys(), "TASKS of jobs/tasks/grading/rewards.py: add a line for each set of questions."


@pytest.mark.parametrize("name", TASKS)
def test_questions_are_distinct_numbered_and_name_their_task(name):
    questions = questions_of(name)
    assert [question.index for question in questions] == list(range(20))
    assert len({question.question_id for question in questions}) == 20
    assert [question.question_id for question in questions_of(name, 5)] == [q.question_id for q in questions[:5]]
    kinds = {question.metadata.get("answer_kind") for question in questions}
    assert kinds == {name}, "metadata['answer_kind']: expected the task's name; verl's workers find the grader by it."


@pytest.mark.parametrize("name", TASKS)
def test_boxed_answer_is_rewarded_and_another_is_not(name):
    questions = questions_of(name, 3)
    reward = TASKS[name].make_reward(DataSpec(), RewardKind.BINARY)
    for suffix, expected in (("", 1.0), ("0", 0.0)):
        texts = [rf"\boxed{{{question.answer}{suffix}}}" for question in questions]
        responses = [Response(text, np.empty(0, dtype=np.int32), is_truncated=False) for text in texts]
        assert [verdict.reward for verdict in reward.grade(questions, responses)] == [expected] * 3
