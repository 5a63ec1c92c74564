import dataclasses
import json

import numpy as np
import pytest

from exgrpo.jobs.runs.control import TrainingError
from exgrpo.jobs.specs.train import DataSpec, ModelSpec, TrainSpec
from exgrpo.jobs.tasks.chains.demonstrators import make_tokenizer
from exgrpo.jobs.tasks.chains.question_set import make_questions
from exgrpo.jobs.training.data_rows import DataError
from exgrpo.jobs.training.demonstrations import encode_response, load_external, read_external
from exgrpo_core.config import ExGRPOConfig
from tests.data_files import write_lines
from tests.jobs.training.format_tokenizer import make_format_tokenizer

pytestmark = pytest.mark.slow

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


def test_a_line_ends_where_json_lines_do(tmp_path):
    rows = [{"question_id": QUESTIONS[i].question_id, "response": f"\u2028\x85\\boxed{{{i}}}"} for i in range(2)]
    path = tmp_path / "external.jsonl"
    path.write_text("\ufeff" + "\r\n\r\n".join(json.dumps(row, ensure_ascii=False) for row in rows), encoding="utf-8")
    assert sorted(load_external(path, QUESTIONS, TOKENIZER, 16)) == [0, 1]


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ("{", "row 1: "), ({"question_id": "a"}, "row 1: "), ({"question_id": "a", "response": ""}, "row 1: "),
        ({"question_id": "other", "response": "x"}, "no row"),
        ({"question_id": QUESTIONS[0].question_id, "response": "123456789"}, "row 1: .* 10 tokens"),
    ],
)  # fmt: skip
def test_bad_rows_and_a_missing_file_are_named(tmp_path, row, named):
    with pytest.raises(TrainingError, match=named):
        load_external(write(tmp_path, row), QUESTIONS, TOKENIZER, 8)
    with pytest.raises(TrainingError, match=r"gone\.jsonl"):
        load_external(tmp_path / "gone.jsonl", QUESTIONS, TOKENIZER, 8)


def hub_data(tmp_path, *targets):
    """A data set in the hub's schema, whose column `target` holds an R1 trajectory as messages."""
    path = write_lines(tmp_path / "data.jsonl", [{"target": target} for target in targets])
    spec = TrainSpec(
        data=DataSpec(source=str(path), template="compact"), model=ModelSpec(source="mine"), external_column="target",
        algorithm=ExGRPOConfig(uses_external_experience=True, experience_ratio=0.0, max_response_tokens=8),
    )  # fmt: skip
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


WRITER = make_format_tokenizer(["<think>It is easy.</think>"], vocabulary_size=300)
THOUGHT = "<think>\nIt is easy.\n</think>\n\\boxed{7}"


@pytest.mark.parametrize(("end", "start"), [("<think>\n", "It"), ("\n", "<think>\nIt")])
def test_a_thought_that_the_prompt_begins_is_not_begun_again(tmp_path, end, start):
    question = dataclasses.replace(QUESTIONS[0], prompt_text=f"How many?{end}", metadata={"row": 1})
    from_file = load_external(
        write(tmp_path, {"question_id": question.question_id, "response": THOUGHT}), [question], WRITER, 99
    )
    spec, _ = hub_data(tmp_path, [{"role": "assistant", "content": THOUGHT}])
    algorithm = dataclasses.replace(spec.algorithm, max_response_tokens=99)
    from_column = read_external(spec.model_copy(update={"algorithm": algorithm}), [question], WRITER)
    written = [encode_response(question, THOUGHT, WRITER), from_file[question.index], from_column[question.index]]
    for item in written:
        assert WRITER.decode(item.token_ids) == start + THOUGHT.removeprefix("<think>\nIt") + "<eos>"


def test_a_tokenizer_without_an_end_token_is_named():
    tokenizer = make_tokenizer()
    tokenizer.eos_token = None
    with pytest.raises(DataError, match=r"^model\.source: .*eos_token"):
        encode_response(QUESTIONS[0], "7", tokenizer)


def test_half_of_a_character_in_a_response_is_named_by_its_row(tmp_path):
    path = write(tmp_path, {"question_id": QUESTIONS[0].question_id, "response": "\ud83d"})
    with pytest.raises(DataError, match=r"row 1, response: holds half"):
        load_external(path, QUESTIONS, TOKENIZER, 16)
    spec, questions = hub_data(tmp_path, "7", "\ud83d")
    with pytest.raises(DataError, match=r"row 2, target: holds half"):
        read_external(spec, questions, TOKENIZER)
