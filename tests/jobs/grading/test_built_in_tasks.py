from pathlib import Path

import numpy as np
import pytest

from exgrpo_core.config import RewardKind
from jobs import tasks
from jobs.grading.built_in_tasks import TASKS
from jobs.grading.reward_function import Response
from jobs.specs.train import DataSpec
from jobs.tasks.chains.tokenizer import make_tokenizer

TOKENIZER = make_tokenizer()


def questions_of(name, count=20):
    return TASKS[name].make_questions(DataSpec(), count, TOKENIZER)


def test_every_folder_with_a_question_set_is_a_task():
    folders = {path.parent.name for path in Path(tasks.__file__).parent.glob("*/question_set.py")}
    assert folders == TASKS.keys(), "TASKS of jobs/grading/built_in_tasks.py: add a line for each set of questions."


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
