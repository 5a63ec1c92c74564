import dataclasses
import json

import numpy as np
import pytest

from exgrpo_core.config import ExGRPOConfig
from jobs.runs.control import TrainingError
from jobs.specs.train import DataSpec, TrainSpec
from jobs.tasks.chains.demonstrators import make_tokenizer
from jobs.tasks.chains.question_set import make_questions
from jobs.training.data_rows import DataError
from jobs.training.demonstrations import load_external, read_external

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
        ("{", "row 1: "),
        ('"text"', "row 1: "),
        ({"question_id": "a"}, "row 1: "),
        ({"question_id": "a", "response": ""}, "row 1: "),
        ({"question_id": 3, "response": "x"}, "row 1: "),
        ({"question_id": "other", "response": "x"}, "no row"),
        ({"question_id": QUESTIONS[0].question_id, "response": "123456789"}, "row 1: .* 10 tokens"),
    ],
)
def test_bad_rows_and_a_missing_file_are_named(tmp_path, row, named):
    with pytest.raises(TrainingError, match=named):
        load_external(write(tmp_path, row), QUESTIONS, TOKENIZER, 8)
    with pytest.raises(TrainingError, match=r"gone\.jsonl"):
        load_external(tmp_path / "gone.jsonl", QUESTIONS, TOKENIZER, 8)


def hub_data(tmp_path, *targets):
    """A data set in the hub's schema, whose column `target` holds an R1 trajectory as messages."""
    path = tmp_path / "data.jsonl"
    path.write_text("".join(json.dumps({"target": target}) + "\n" for target in targets))
    spec = TrainSpec(
        data=DataSpec(source=str(path), template="compact"),
        external_column="target",
        algorithm=ExGRPOConfig(uses_external_experience=True, experience_ratio=0.0, max_response_tokens=8),
    )
    questions = [
        dataclasses.replace(question, metadata={"row": number})
        for number, question in enumerate(QUESTIONS[: len(targets)], start=1)
    ]
    return spec, questions


def test_trajectories_come_from_a_column_of_the_hubs_schema(tmp_path):
    spec, questions = hub_data(tmp_path, [{"role": "assistant", "content": "\\boxed{7}"}], "\\boxed{1}")
    external = read_external(spec, questions, TOKENIZER)
    assert [TOKENIZER.decode(external[index].token_ids) for index in (0, 1)] == ["\\boxed{7}<eos>", "\\boxed{1}<eos>"]
    assert external[1].question_index == 1
    assert not external[0].behavior_log_probs.any()


def test_rows_without_a_trajectory_and_long_ones_have_none(tmp_path, caplog):
    spec, questions = hub_data(tmp_path, None, "\\boxed{1}", "123456789")
    assert list(read_external(spec, questions, TOKENIZER)) == [1]
    assert "1 trajectories longer than 8 tokens are left out" in caplog.text


@pytest.mark.parametrize("target", [5, None])
def test_a_column_that_cannot_be_used_is_refused(tmp_path, target):
    spec, questions = hub_data(tmp_path, target)
    with pytest.raises(DataError):
        read_external(spec, questions, TOKENIZER)
    assert read_external(TrainSpec(), QUESTIONS, TOKENIZER) == {}
