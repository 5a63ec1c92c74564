import json

import numpy as np
import pytest

from jobs.runs.control import TrainingError
from jobs.tasks.chains.question_set import make_questions
from jobs.tasks.chains.tokenizer import make_tokenizer
from jobs.training.external import load_external

TOKENIZER = make_tokenizer()
QUESTIONS = make_questions(4, 1, TOKENIZER)


def write(tmp_path, *rows):
    path = tmp_path / "external.jsonl"
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def test_response_becomes_an_experience_of_its_question_with_behavior_probability_one(tmp_path):
    path = write(tmp_path, {"question_id": QUESTIONS[2].question_id, "response": "\\boxed{7}"})
    (experience,) = load_external(path, QUESTIONS, TOKENIZER, 16).values()
    assert experience.question_index == 2
    assert experience.reward == 1.0
    assert TOKENIZER.decode(experience.token_ids) == "\\boxed{7}<eos>"
    assert np.array_equal(experience.behavior_log_probs, np.zeros(4, dtype=np.float32))
    assert experience.row < 0


def test_rows_of_other_questions_are_passed_over(tmp_path):
    known = {"question_id": QUESTIONS[0].question_id, "response": "\\boxed{1}"}
    path = write(tmp_path, {"question_id": "other", "response": "x"}, known)
    assert list(load_external(path, QUESTIONS, TOKENIZER, 16)) == [0]


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ("{", "row 1: expected an object"),
        ('"text"', "row 1: expected an object"),
        ({"question_id": "a"}, "row 1: expected an object"),
        ({"question_id": "a", "response": ""}, "row 1: question_id and response must be"),
        ({"question_id": 3, "response": "x"}, "row 1: question_id and response must be"),
        ({"question_id": "other", "response": "x"}, "no row's question_id"),
        ({"question_id": QUESTIONS[0].question_id, "response": "123456789"}, "row 1: response has 10 tokens"),
    ],
)
def test_bad_rows_are_named(tmp_path, row, named):
    with pytest.raises(TrainingError, match=named):
        load_external(write(tmp_path, row), QUESTIONS, TOKENIZER, 8)


def test_missing_file_is_named(tmp_path):
    with pytest.raises(TrainingError, match=r"external_experience: .*gone\.jsonl"):
        load_external(tmp_path / "gone.jsonl", QUESTIONS, TOKENIZER, 8)
