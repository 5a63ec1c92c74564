import json

import pytest

from jobs.evaluation.validation_questions import FIRST_INDEX, read_validation_questions
from jobs.specs.train import SpecError, parse_spec
from jobs.training.data_rows import DataError


class Characters:
    def encode(self, text, **_):
        return list(range(len(text)))

    def get_chat_template(self):
        raise ValueError("there is none")


def spec_of(benchmarks, max_prompt_tokens=20_000, **validation):
    return parse_spec(
        {
            "data": {"source": "train.parquet", "template": "compact"},
            "algorithm": {"max_prompt_tokens": max_prompt_tokens},
            "validation": {"benchmarks": benchmarks, **validation},
        },
        "test",
    )


def own_file(tmp_path, texts):
    path = tmp_path / "own.jsonl"
    path.write_text("".join(json.dumps({"problem": text, "answer": "7"}) + "\n" for text in texts))
    return str(path)


def test_questions_are_asked_in_the_template_of_the_training_data(tmp_path):
    questions = read_validation_questions(spec_of({"mine": own_file(tmp_path, ["3 + 4?", "9 - 2?"])}), Characters())
    first, second = questions["mine"]
    assert "3 + 4?" in first.prompt_text
    assert first.prompt_text != "3 + 4?"
    assert (first.answer, first.metadata["answer_kind"], first.metadata["data_source"]) == ("7", "math", "mine")
    assert (first.index, second.index) == (FIRST_INDEX, FIRST_INDEX + 1)


def test_a_benchmark_has_its_own_template_grading_and_number_of_questions(tmp_path):
    mine = {"source": own_file(tmp_path, ["3 + 4?", "9 - 2?"]), "template": "none", "num_questions": 1}
    questions = read_validation_questions(spec_of({"mine": {**mine, "answer_kind": "choice"}}), Characters())
    assert [(item.prompt_text, item.metadata["answer_kind"]) for item in questions["mine"]] == [("3 + 4?", "choice")]


def test_a_template_that_the_model_lacks_is_named(tmp_path):
    spec = spec_of({"mine": {"source": own_file(tmp_path, ["3 + 4?"]), "template": "chat"}})
    with pytest.raises(DataError, match=r"^validation.benchmarks.mine.template: the tokenizer's chat template cannot"):
        read_validation_questions(spec, Characters())


@pytest.mark.parametrize(
    ("written", "read_back"),
    [
        (None, None),
        ("", None),
        ("mine.jsonl", "mine.jsonl"),
        ({"source": "mine.jsonl"}, "mine.jsonl"),
        ({"source": "mine.jsonl", "temperature": 0.0}, {"source": "mine.jsonl", "temperature": 0.0}),
    ],
)
def test_a_benchmark_is_written_as_its_source_where_that_says_all(written, read_back):
    spec = spec_of({"mine": written})
    assert spec.model_dump(mode="json")["validation"]["benchmarks"] == {"mine": read_back}
    assert parse_spec(spec.model_dump(mode="json"), "test") == spec


def test_a_wrong_field_of_a_benchmark_is_named():
    with pytest.raises(SpecError, match=r"validation.benchmarks.mine.sauce: there is no such field"):
        spec_of({"mine": {"sauce": "mine.jsonl"}})


def test_prompts_that_are_too_long_are_left_out(tmp_path):
    spec = spec_of({"mine": own_file(tmp_path, ["3 + 4?", "9" * 500])}, max_prompt_tokens=300)
    assert len(read_validation_questions(spec, Characters())["mine"]) == 1


def test_file_that_is_not_the_whole_benchmark_is_refused(tmp_path):
    with pytest.raises(DataError, match="30"):
        read_validation_questions(spec_of({"aime24": own_file(tmp_path, ["3 + 4?"])}), Characters())


def test_the_papers_questions_are_drawn_from_its_test_files(shared_dir):
    folder = shared_dir / "data" / "benchmarks"
    files = dict.fromkeys(("aime24", "aime25", "amc", "math500", "minerva", "olympiad_bench"), "test.id.parquet")
    sources = {name: str(folder / file) for name, file in {**files, "arc_c": "arc_c.parquet"}.items()}
    every = read_validation_questions(spec_of(sources), Characters())
    assert {name: len(questions) for name, questions in every.items()} == {
        "aime24": 30, "aime25": 30, "amc": 83, "math500": 500, "minerva": 272, "olympiad_bench": 675, "arc_c": 1172,
    }  # fmt: skip
    drawn = read_validation_questions(spec_of(sources, num_benchmark_questions=2200), Characters())
    assert sum(map(len, drawn.values())) == 2200
    again = read_validation_questions(spec_of(sources, num_benchmark_questions=2200), Characters())
    assert [item.index for items in again.values() for item in items] == list(range(FIRST_INDEX, FIRST_INDEX + 2200))
    assert [item.question_id for item in again["arc_c"]] == [item.question_id for item in drawn["arc_c"]]


@pytest.mark.parametrize("name", ["training", "held_out", "a name", "x" * 17])
def test_names_of_other_sets_are_refused(name):
    with pytest.raises(SpecError, match=r"validation\.benchmarks"):
        spec_of({name: None})


def test_chains_are_not_validated_on_benchmarks():
    with pytest.raises(SpecError, match=r"validation\.benchmarks: expected none for chains"):
        parse_spec({"validation": {"benchmarks": {"aime24": None}}}, "test")
