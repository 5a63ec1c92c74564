import json

import pytest

from jobs.evaluation.benchmark_questions import FIRST_INDEX, load_benchmark, read_plain_row, read_validation_questions
from jobs.evaluation.protocols import Protocol, find_protocol, load_protocols, protocol_of
from jobs.specs.evaluation import BenchmarkChoice
from jobs.specs.train import SpecError, parse_spec
from jobs.training.data_rows import DataError
from tests.jobs.evaluation.tiny_evaluations import BENCHMARKS

SMALL = Protocol("small", "Small", ("small",), find_protocol("aime24").hub, 2, 4, "math")
COUNTS = {
    "aime24": (30, 32),
    "aime25": (30, 32),
    "amc": (83, 32),
    "math500": (500, 1),
    "minerva": (272, 1),
    "olympiad_bench": (675, 1),
    "arc_c": (1172, 1),
    "mmlu_pro": (12032, 1),
}


def verl_row(question: str, answer: object, source: str = "small") -> dict:
    prompt = [{"role": "system", "content": "Think."}, {"role": "user", "content": question}]
    return {"data_source": source, "prompt": prompt, "reward_model": {"ground_truth": answer}}


def load_rows(tmp_path, rows, protocol=SMALL, **changes):
    path = tmp_path / "data.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return load_benchmark(BenchmarkChoice(name=protocol.name, source=str(path), **changes), protocol)


@pytest.mark.parametrize("name", list(BENCHMARKS))
def test_provided_files_hold_exactly_the_protocols_questions(name, shared_dir):
    source = str(shared_dir / "data" / "benchmarks" / BENCHMARKS[name])
    loaded = load_benchmark(BenchmarkChoice(name=name, source=source), find_protocol(name))
    assert (len(loaded.questions), loaded.samples_per_question) == COUNTS[name]
    assert len({question.question_id for question in loaded.questions}) == len(loaded.questions)


def test_row_that_contradicts_itself_is_said(shared_dir):
    source = str(shared_dir / "data" / "benchmarks" / "mmlu_pro_test.jsonl.gz")
    loaded = load_benchmark(BenchmarkChoice(name="mmlu_pro", source=source), find_protocol("mmlu_pro"))
    assert loaded.notices == [
        "mmlu_pro_test.jsonl.gz, row 3860: answer C contradicts answer_index 1; the answer counts."
    ]


def test_one_benchmark_in_two_layouts_has_one_data_hash(tmp_path):
    in_schema = load_rows(tmp_path, [verl_row("1+1", "2"), verl_row("2+2", "4")])
    in_columns = load_rows(tmp_path, [{"problem": "1+1", "answer": 2.0}, {"problem": "2+2", "answer": "4"}])
    assert in_schema.data_hash == in_columns.data_hash
    assert load_rows(tmp_path, [verl_row("1+1", "2"), verl_row("2+2", "5")]).data_hash != in_schema.data_hash


def test_expanded_rows_are_one_question_asked_several_times(tmp_path):
    loaded = load_rows(tmp_path, [verl_row("1+1", "2"), verl_row("2+2", "4")] * 4)
    assert [question.num_rows for question in loaded.questions] == [4, 4]
    assert loaded.samples_per_question == 4


def test_slice_and_number_of_samples_can_be_chosen(tmp_path):
    rows = [verl_row("1+1", "2"), verl_row("2+2", "4"), verl_row("other", "1", source="else")]
    loaded = load_rows(tmp_path, rows, num_questions=1, samples_per_question=3)
    assert [question.text for question in loaded.questions] == ["1+1"]
    assert loaded.samples_per_question == 3


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([verl_row("1+1", "2")], "holds 1 questions of small, expected 2; give the benchmark's whole file"),
        (
            [verl_row("1+1", "2", source="mine")] * 3,
            r"holds 0 questions of small, expected 2; its data_source is 'mine' \(3 rows\) where small counts; .*"
            "under a name of its own, as in mine=data.jsonl",
        ),
        (
            [verl_row("1+1", "2"), verl_row("2+2", "4"), verl_row("1+1", "2")],
            r"row 3: its question is in 2 rows \(1, 3\)",
        ),
        ([verl_row("1+1", "2"), verl_row("1+1", "3")], "row 2: gold '3' contradicts '2' of row 1"),
        ([verl_row("1+1", "2"), verl_row("2+2", "")], "row 2, reward_model.ground_truth"),
        (
            [verl_row("1+1", "2")] * 4 + [verl_row("2+2", "4")] * 3,
            r"row 7: its question is in 3 rows \(5, 6, 7\), expected each question in one row or each in 4 rows",
        ),
        (
            [{"id": 1, "problem": "a", "answer": "1"}, {"id": 1, "problem": "b", "answer": "1"}],
            "row 2: id 1 is another question's already, in row 1",
        ),
        (
            [{"problem": "a", "answer": "1"}, {"problem": "b", "answer": None}],
            "row 2: expected a question and its gold",
        ),
        ([{"text": "a"}], "expected columns of verl's schema or of a published layout"),
        ([], "holds 0 questions"),
    ],
)
def test_bad_data_is_refused_before_anything_is_generated(tmp_path, rows, message):
    with pytest.raises(DataError, match=message):
        load_rows(tmp_path, rows)


def test_published_layouts_of_choices_become_lettered_questions():
    pro = {"question_id": 7, "question": "Q?", "options": ["x", "y"], "answer": "B", "answer_index": 1}
    assert read_plain_row(pro, "file") == ("7", "Q?\n\nA) x\nB) y\n", "B", None)
    arc = {"id": "a1", "question": "Q?", "choices": {"label": ["1", "2"], "text": ["x", "y"]}, "answerKey": "2"}
    assert read_plain_row(arc, "file") == ("a1", "Q?\n\n1) x\n2) y\n", "2", None)


def test_order_of_gpqa_options_follows_from_the_question():
    wrong = {f"Incorrect Answer {number}": f"wrong {number}" for number in (1, 2, 3)}
    rows = [{"Question": f"Q{number}?", "Correct Answer": "right"} | wrong for number in range(20)]
    read = [read_plain_row(row, "file") for row in rows]
    assert read == [read_plain_row(row, "file") for row in rows]
    assert {gold for _, _, gold, _ in read} == {"A", "B", "C", "D"}
    assert all(f"{gold}) right" in text for _, text, gold, _ in read)


def test_protocols_are_the_papers_nine_benchmarks():
    protocols = load_protocols()
    assert {name: (protocol.num_questions, protocol.samples_per_question) for name, protocol in protocols.items()} == (
        COUNTS | {"gpqa_diamond": (198, 1)}
    )
    with pytest.raises(SpecError, match="benchmarks: expected some of aime24"):
        find_protocol("aime23")


def mine(**fields) -> Protocol:
    return protocol_of(BenchmarkChoice(name="mine", source="data.jsonl", **fields))


def test_data_of_ones_own_counts_every_row_and_is_graded_by_its_layout(tmp_path):
    rows = [verl_row("1+1", "2", source="any"), {"question": "Q?", "options": ["x", "y"], "answer": "B"}]
    loaded = load_rows(tmp_path, rows, mine())
    assert [question.answer_kind for question in loaded.questions] == ["math", "choice"]
    assert (loaded.samples_per_question, loaded.protocol.title) == (1, "mine")


def test_repeated_rows_of_ones_own_data_are_named_unless_they_are_its_samples(tmp_path):
    rows = [verl_row("1+1", "2"), verl_row("2+2", "4")] * 2
    with pytest.raises(DataError, match=r"data.jsonl, row 3: its question is in 2 rows \(1, 3\)"):
        load_rows(tmp_path, rows, mine())
    assert load_rows(tmp_path, rows, mine(samples_per_question=2), samples_per_question=2).samples_per_question == 2


def test_more_questions_than_there_are_cannot_be_asked(tmp_path):
    with pytest.raises(DataError, match="holds 1 questions of mine, expected 5 or more; lower the number"):
        load_rows(tmp_path, [verl_row("1+1", "2")], mine(), num_questions=5)
    rows = [verl_row("1+1", "2"), verl_row("2+2", "4"), verl_row("other", "1", source="else")]
    with pytest.raises(DataError, match="holds 2 questions of small, expected 5 or more; lower the number"):
        load_rows(tmp_path, rows, num_questions=5)


def test_long_id_of_a_row_gives_way_to_one_that_the_database_holds(tmp_path):
    loaded = load_rows(tmp_path, [{"id": "x" * 200, "problem": "1+1", "answer": "2"}], mine())
    assert len(loaded.questions[0].question_id) == 16


def test_title_of_the_papers_benchmark_cannot_be_changed():
    with pytest.raises(SpecError, match=r"benchmarks.amc.title: expected none, since amc is the paper's"):
        protocol_of(BenchmarkChoice(name="amc", title="Mine"))


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
