import math
from dataclasses import replace
from functools import partial

import pytest

from exgrpo.jobs.evaluation.benchmark_questions import (
    FIRST_INDEX,
    load_benchmark,
    read_validation_questions,
    refuse_control_tokens,
)
from exgrpo.jobs.evaluation.protocols import Protocol, find_protocol, load_protocols, protocol_of
from exgrpo.jobs.specs.evaluation import BenchmarkChoice
from exgrpo.jobs.specs.train import SpecError, parse_spec
from exgrpo.jobs.training.data_rows import DataError
from exgrpo.jobs.training.layouts import read_row
from tests import data_files
from tests.data_files import write_lines
from tests.jobs.training.format_tokenizer import make_format_tokenizer

SMALL = Protocol("small", "Small", ("small",), find_protocol("aime24").hub, 2, 4, "math")
WRONG = ("Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
OF_THE_PAPER = {
    "aime24": (30, 32), "aime25": (30, 32), "amc": (83, 32), "math500": (500, 1), "minerva": (272, 1),
    "olympiad_bench": (675, 1), "arc_c": (1172, 1), "mmlu_pro": (12032, 1), "gpqa_diamond": (198, 1),
}  # fmt: skip
"""Number of questions, and samples of each."""
verl_row = partial(data_files.verl_row, source="small", system="Think.")
ONE, TWO, ELSE = verl_row("1+1", "2"), verl_row("2+2", "4"), verl_row("other", "1", source="else")


def load_rows(tmp_path, rows, protocol=SMALL, **changes):
    path = write_lines(tmp_path / "data.jsonl", rows)
    return load_benchmark(BenchmarkChoice(name=protocol.name, source=str(path), **changes), protocol)


def test_one_benchmark_in_two_layouts_has_one_data_hash(tmp_path):
    in_schema = load_rows(tmp_path, [ONE, TWO])
    in_columns = load_rows(tmp_path, [{"problem": "1+1", "answer": 2.0}, {"problem": "2+2", "answer": "4"}])
    assert in_schema.data_hash == in_columns.data_hash
    assert load_rows(tmp_path, [ONE, verl_row("2+2", "5")]).data_hash != in_schema.data_hash


def test_expanded_rows_are_one_question_asked_several_times(tmp_path):
    loaded = load_rows(tmp_path, [ONE, TWO] * 4)
    assert [question.num_rows for question in loaded.questions] == [4, 4]
    assert loaded.samples_per_question == 4


def test_slice_and_number_of_samples_can_be_chosen(tmp_path):
    loaded = load_rows(tmp_path, [ONE, TWO, ELSE], num_questions=1, samples_per_question=3)
    assert [question.text for question in loaded.questions] == ["1+1"]
    assert loaded.samples_per_question == 3
    assert any("1 of 2" in notice for notice in loaded.notices)


@pytest.mark.parametrize(("text", "gold", "num_odd"), [("1+1", "2", 0), (" 1+1\n", "2", 0), ("1+1", "3", 1)])
def test_questions_that_are_asked_again_under_another_id_are_counted(tmp_path, text, gold, num_odd):
    rows = [("1+1", "2"), (text, gold), ("2+2", "4")]
    raw = [{"id": number, "problem": asked, "answer": answer} for number, (asked, answer) in enumerate(rows, start=1)]
    loaded = load_rows(tmp_path, raw, mine())
    assert len(loaded.questions) == 3
    assert loaded.notices[1].startswith(f"data.jsonl: 1 questions are asked again under another id, {num_odd} of them")


@pytest.mark.parametrize(
    ("rows", "where"),
    [
        ([ONE], "1 questions of small, expected 2"),
        ([verl_row("1+1", "2", source="mine")] * 3, r"0 questions of small, expected 2; .*'mine' \(3 rows\)"),
        ([ONE, TWO, ONE], r"row 3: .* \(1, 3\)"),
        ([ONE, verl_row("1+1", "3")], "row 2: gold '3' contradicts '2' of row 1"),
        ([ONE, verl_row("2+2", "")], "row 2, reward_model.ground_truth"),
        ([{"id": 1, "problem": "a", "answer": "1"}, {"id": 1, "problem": "b", "answer": "1"}], "row 2: id 1 .* row 1"),
        ([{"problem": "a", "answer": "1"}, {"problem": "b", "answer": None}], "row 2, answer: "),
        ([{"text": "a"}], "row 1: .* text"),
    ],
)
def test_bad_data_is_refused_with_its_place(tmp_path, rows, where):
    with pytest.raises(DataError, match=where):
        load_rows(tmp_path, rows)


def test_order_of_gpqa_options_follows_from_the_question():
    wrong = {f"Incorrect Answer {number}": f"wrong {number}" for number in (1, 2, 3)}
    rows = [{"Question": f"Q{number}?", "Correct Answer": "right"} | wrong for number in range(20)]
    read = [read_row(number, row, "file") for number, row in enumerate(rows)]
    assert read == [read_row(number, row, "file") for number, row in enumerate(rows)]
    assert {row.gold for row in read} == {"A", "B", "C", "D"}
    assert all(f"{row.gold}) right" in row.text for row in read)


def test_protocols_are_the_papers_nine_benchmarks():
    found = {name: (item.num_questions, item.samples_per_question) for name, item in load_protocols().items()}
    assert found == OF_THE_PAPER


def mine(**fields) -> Protocol:
    return protocol_of(BenchmarkChoice(name="mine", source="data.jsonl", **fields))


def test_data_of_ones_own_counts_every_row_and_is_graded_by_its_layout(tmp_path):
    rows = [verl_row("1+1", "2", source="any"), {"question": "Q?", "options": ["x", "y"], "answer": "B"}]
    loaded = load_rows(tmp_path, [*rows, {"id": "x" * 200, "problem": "3+3", "answer": "6"}], mine())
    assert [question.answer_kind for question in loaded.questions] == ["math", "choice", "math"]
    assert (loaded.samples_per_question, loaded.protocol.title) == (1, "mine")
    assert len(loaded.questions[2].question_id) == 16  # the database holds no id of 200 characters


def test_repeated_rows_of_ones_own_data_are_named_unless_they_are_its_samples(tmp_path):
    with pytest.raises(DataError, match=r"row 3: .* \(1, 3\)"):
        load_rows(tmp_path, [ONE, TWO] * 2, mine())
    loaded = load_rows(tmp_path, [ONE, TWO] * 2, mine(samples_per_question=2), samples_per_question=2)
    assert loaded.samples_per_question == 2


@pytest.mark.parametrize(("rows", "protocol", "num"), [([ONE], mine(), 1), ([ONE, TWO, ELSE], SMALL, 2)])
def test_more_questions_than_there_are_cannot_be_asked(tmp_path, rows, protocol, num):
    with pytest.raises(DataError, match=f"holds {num} questions .*, expected 5 or more"):
        load_rows(tmp_path, rows, protocol, num_questions=5)


class Characters:
    def encode(self, text, **_):
        return list(range(len(text)))

    def get_chat_template(self):
        raise ValueError("there is none")


def spec_of(benchmarks, max_prompt_tokens=20_000, **validation):
    return parse_spec(
        {
            "model": {"source": "mine"},
            "data": {"source": "train.parquet", "template": "compact"},
            "algorithm": {"max_prompt_tokens": max_prompt_tokens},
            "validation": {"benchmarks": benchmarks, **validation},
        },
        "test",
    )


@pytest.fixture
def own_file(tmp_path):
    rows = [{"problem": text, "answer": "7"} for text in ("3 + 4?", "9" * 500)]
    return str(write_lines(tmp_path / "own.jsonl", rows))


def test_questions_are_asked_in_the_template_of_the_training_data_unless_too_long(own_file):
    first, second = read_validation_questions(spec_of({"mine": own_file}), Characters())["mine"]
    assert "3 + 4?" in first.prompt_text
    assert first.prompt_text != "3 + 4?"
    assert (first.answer, first.metadata["answer_kind"], first.metadata["data_source"]) == ("7", "math", "mine")
    assert (first.index, second.index) == (FIRST_INDEX, FIRST_INDEX + 1)
    short = spec_of({"mine": own_file}, max_prompt_tokens=300)
    assert [item.index for item in read_validation_questions(short, Characters())["mine"]] == [FIRST_INDEX]


def test_a_benchmark_has_its_own_template_grading_and_number_of_questions(own_file):
    mine = {"source": own_file, "template": "none", "num_questions": 1, "answer_kind": "choice"}
    questions = read_validation_questions(spec_of({"mine": mine}), Characters())
    assert [(item.prompt_text, item.metadata["answer_kind"]) for item in questions["mine"]] == [("3 + 4?", "choice")]


@pytest.mark.parametrize(
    ("written", "read_back"),
    [
        (None, None), ("", None), ("mine.jsonl", "mine.jsonl"), ({"source": "mine.jsonl"}, "mine.jsonl"),
        ({"source": "mine.jsonl", "temperature": 0.0}, {"source": "mine.jsonl", "temperature": 0.0}),
    ],
)  # fmt: skip
def test_a_benchmark_is_written_as_its_source_where_that_says_all(written, read_back):
    spec = spec_of({"mine": written})
    assert spec.model_dump(mode="json")["validation"]["benchmarks"] == {"mine": read_back}
    assert parse_spec(spec.model_dump(mode="json"), "test") == spec


@pytest.mark.parametrize("name", ["training", "held_out", "a name", "x" * 17])
def test_names_of_other_sets_are_refused(name):
    with pytest.raises(SpecError, check=lambda error: error.fields[0].startswith("validation.benchmarks")):
        spec_of({name: None})


def test_chains_are_not_validated_on_benchmarks():
    with pytest.raises(SpecError, check=lambda error: error.fields[0].startswith("validation.benchmarks")):
        parse_spec({"validation": {"benchmarks": {"aime24": None}}}, "test")


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        ({"problem": "1+1 \ud83d", "answer": "2"}, "problem: holds half"),
        ({"question": "1+1", "options": ["2", "3\ud83d"], "answer": "A"}, "options: holds half"),
        ({"Question": "1+1", "Correct Answer": "2\ud83d"} | dict.fromkeys(WRONG, "3"), "Correct Answer: holds half"),
        ({"problem": "1+1", "answer": math.nan}, ".*gold answer"),
    ],
)
def test_halves_of_characters_and_golds_that_are_no_number_are_named_by_row_and_field(tmp_path, raw, field):
    with pytest.raises(DataError, match=f"^data.jsonl, row 2[,:] ?{field}"):
        load_rows(tmp_path, [TWO, raw], replace(SMALL, answer_kind="auto"))


def test_control_tokens_in_a_benchmark_are_named_by_its_question(tmp_path):
    tokenizer = make_format_tokenizer(["1+1"], vocabulary_size=300)
    refuse_control_tokens([load_rows(tmp_path, [ONE, TWO])], tokenizer)
    rows = [{"problem": "1+1", "answer": "2", "id": "a"}, {"problem": "1+1 <eos>", "answer": "2", "id": "b"}]
    with pytest.raises(DataError, match=r"^small, question b: holds '<eos>'"):
        refuse_control_tokens([load_rows(tmp_path, rows)], tokenizer)
    content = {
        "model": {"source": "mine"},
        "data": {"source": "word_problems"},
        "validation": {"benchmarks": {"sums": {"source": str(tmp_path / "data.jsonl")}}},
    }
    with pytest.raises(DataError, match=r"^sums, question b: holds '<eos>'"):
        read_validation_questions(parse_spec(content, "test"), tokenizer)
