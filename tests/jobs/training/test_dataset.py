import gzip
import json

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.tasks.chains.demonstrators import make_tokenizer
from jobs.training.data_rows import DataError
from jobs.training.dataset import DataSource, encode_rows, read_rows
from jobs.training.templates import TemplateName

TOKENIZER = make_tokenizer()


def row(question="What is 2+3?", answer="5", data_source="openr1", **changes):
    content = {
        "data_source": data_source,
        "prompt": [{"content": "Think.", "role": "system"}, {"content": question, "role": "user"}],
        "ability": "math",
        "reward_model": {"ground_truth": answer, "style": "rule"},
        "extra_info": {"index": 0, "split": "default"},
    }
    return {**content, **changes}


ROWS = [row(f"What is {number}+3?", str(number + 3)) for number in range(6)]


def write_lines(path, rows):
    path.write_text("".join(json.dumps(item) + "\n" for item in rows), encoding="utf-8")
    return path


def source(path, **changes) -> DataSource:
    return DataSource(**{"source": str(path), "template": TemplateName.COMPACT, **changes})


def load(path, max_prompt_tokens=100, **changes):
    asked = source(path, **changes)
    return encode_rows(read_rows(asked), asked, TOKENIZER, max_prompt_tokens)[0]


def test_every_kind_of_source_gives_the_same_questions(tmp_path):
    lines = write_lines(tmp_path / "rows.jsonl", ROWS)
    parquet = tmp_path / "rows.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS), parquet)
    zipped = tmp_path / "rows.jsonl.gz"
    zipped.write_bytes(gzip.compress(lines.read_bytes()))
    saved, saved_splits = tmp_path / "saved", tmp_path / "saved_splits"
    datasets.Dataset.from_list(ROWS).save_to_disk(str(saved))
    datasets.DatasetDict({"train": datasets.Dataset.from_list(ROWS)}).save_to_disk(str(saved_splits))
    folder = tmp_path / "folder"
    folder.mkdir()
    pq.write_table(pa.Table.from_pylist(ROWS), folder / "train-00000.parquet")
    loaded = [load(path) for path in (lines, parquet, zipped, saved, saved_splits, folder)]
    assert [q.question_id for q in loaded[0]] == [q.question_id for q in load(lines)]
    for questions in loaded:
        assert [q.index for q in questions] == list(range(6))
        assert [(q.question_id, q.prompt_text, q.answer) for q in questions] == [
            (q.question_id, q.prompt_text, q.answer) for q in loaded[0]
        ]


def test_a_question_keeps_its_id_under_every_template_and_place(tmp_path):
    path = write_lines(tmp_path / "a.jsonl", ROWS)
    other = write_lines(tmp_path / "b.jsonl", ROWS[::-1])
    assert load(path)[0].question_id == "913eb189cd202cc3"
    assert load(path, template=TemplateName.NONE)[0].question_id == load(other)[-1].question_id


def test_a_question_carries_prompt_answer_and_origin(tmp_path):
    question = load(write_lines(tmp_path / "a.jsonl", ROWS))[2]
    assert question.prompt_text == "What is 2+3?\n"
    assert question.answer == "5"
    assert TOKENIZER.encode(question.prompt_text) == question.prompt_ids.tolist()
    assert question.metadata == {
        "data_source": "openr1",
        "answer_kind": "math",
        "ability": "math",
        "question": "What is 2+3?",
        "row": 3,
        "num_rows": 1,
    }


def test_equal_rows_become_one_question_and_a_notice(tmp_path):
    path = write_lines(tmp_path / "expanded.jsonl", [*ROWS, ROWS[1], ROWS[1]])
    questions, rows = encode_rows(read_rows(source(path)), source(path), TOKENIZER, 200)
    assert len(questions) == 6
    assert [q.metadata["num_rows"] for q in questions] == [1, 3, 1, 1, 1, 1]
    assert rows.notices == ["expanded.jsonl: 8 rows hold 6 questions; equal rows were merged."]


def test_rows_that_contradict_each_other_are_refused(tmp_path):
    path = write_lines(tmp_path / "a.jsonl", [*ROWS, row("What is 1+3?", "7")])
    with pytest.raises(DataError, match=r"a.jsonl, row 7, reward_model.ground_truth: '7' contradicts '4' of row 2"):
        load(path)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (row(prompt=None), "row 2, prompt: expected a list of messages"),
        (row(prompt="What is 2+3?"), "row 2, prompt: expected a list of messages"),
        (row(prompt=[]), "row 2, prompt: expected a list of messages"),
        (row(prompt=["What?"]), "row 2, prompt: expected messages with content and role"),
        (row(prompt=[{"role": "user"}]), "row 2, prompt, content: expected a text"),
        (row(prompt=[{"content": "What?"}]), "row 2, prompt, role: expected a text"),
        (row(prompt=[{"content": "Think.", "role": "system"}]), "row 2, prompt: expected one user message"),
        (row(question="   "), "row 2, prompt, content: expected a text"),
        (row(reward_model=None), "row 2, reward_model.ground_truth: expected a text or number, got None"),
        (row(reward_model={"style": "rule"}), "row 2, reward_model.ground_truth: expected a text or number"),
        (row(answer="  "), "row 2, reward_model.ground_truth: expected a text or number"),
        (row(answer=True), "row 2, reward_model.ground_truth: expected a text or number, got True"),
        (row(answer=["5"]), "row 2, reward_model.ground_truth: expected a text or number"),
        (row(data_source=None), "row 2, data_source: expected a text, got None"),
        (row(data_source="arc_c", answer="K"), "row 2, reward_model.ground_truth: expected an option label"),
        ([1], "row 2: expected a JSON object, got list"),
    ],
)
def test_a_bad_row_is_named_with_its_file_and_field(tmp_path, bad, message):
    path = write_lines(tmp_path / "bad.jsonl", [ROWS[0], bad, ROWS[1]])
    with pytest.raises(DataError, match="bad.jsonl, " + message.replace("[", r"\[")):
        load(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"data_source": "a"', "broken.jsonl, row 1: is not JSON"),
        (b"\xff\xfe\n", "broken.jsonl, row 1: cannot be read"),
        (b"", "broken.jsonl: has no rows"),
        (b"\n\n", "broken.jsonl: has no rows"),
    ],
)
def test_a_file_that_is_not_json_lines_is_refused(tmp_path, content, message):
    (tmp_path / "broken.jsonl").write_bytes(content)
    with pytest.raises(DataError, match=message):
        load(tmp_path / "broken.jsonl")


def test_other_files_and_names_are_refused(tmp_path):
    (tmp_path / "rows.csv").write_text("a,b\n")
    (tmp_path / "rows.parquet").write_text("not parquet")
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(b"{}" * 1000)[:20])
    with pytest.raises(DataError, match=r"rows\.csv: expected a file that ends in"):
        load(tmp_path / "rows.csv")
    with pytest.raises(DataError, match="is not a readable Parquet file"):
        load(tmp_path / "rows.parquet")
    with pytest.raises(DataError, match=r"cut\.jsonl\.gz, row 1: cannot be read"):
        load(tmp_path / "cut.jsonl.gz")
    with pytest.raises(DataError, match="no such file"):
        load(tmp_path / "missing.parquet")
    with pytest.raises(DataError, match="nobody/nothing: the data set or its split 'train' cannot be loaded"):
        load("nobody/nothing")


def test_a_split_that_is_not_there_is_refused(tmp_path):
    datasets.DatasetDict({"train": datasets.Dataset.from_list(ROWS)}).save_to_disk(str(tmp_path / "saved"))
    with pytest.raises(DataError, match="its split 'test' cannot be loaded"):
        load(tmp_path / "saved", split="test")


def test_too_long_prompts_are_refused_or_dropped_and_counted(tmp_path):
    path = write_lines(tmp_path / "a.jsonl", [*ROWS, row("x" * 50, "1"), row("x" * 60, "2")])
    with pytest.raises(
        DataError, match=r"a.jsonl: 2 prompts longer than 40 tokens \(the longest, row 8, has 61\); raise"
    ):
        load(path, max_prompt_tokens=40)
    dropping = source(path, too_long_prompts="drop")
    questions, rows = encode_rows(read_rows(dropping), dropping, TOKENIZER, 40)
    assert len(questions) == len(rows.rows) == 6
    assert rows.notices == ["a.jsonl: 2 prompts longer than 40 tokens (the longest, row 8, has 61) were dropped."]
    with pytest.raises(DataError, match="no prompt fits"):
        load(path, max_prompt_tokens=3, too_long_prompts="drop")


def test_the_first_questions_are_taken_and_asking_for_more_is_refused(tmp_path):
    path = write_lines(tmp_path / "a.jsonl", ROWS)
    assert [q.question_id for q in load(path, num_questions=2)] == [q.question_id for q in load(path)[:2]]
    with pytest.raises(DataError, match="has 6 usable questions, expected 7"):
        load(path, num_questions=7)


def test_answers_of_choice_benchmarks_are_choices_and_others_as_declared(tmp_path):
    path = write_lines(
        tmp_path / "a.jsonl", [row(data_source="arc_c", answer="B"), row("Which?", "B"), row("How many?", 4)]
    )
    assert [q.metadata["answer_kind"] for q in load(path)] == ["choice", "math", "math"]
    assert [q.metadata["answer_kind"] for q in load(path, answer_kind="choice")] == ["choice"] * 3
    assert [q.answer for q in load(path)] == ["B", "B", "4"]


def test_arc_challenge_is_read_whole(shared_dir):
    questions = read_rows(source(shared_dir / "data/benchmarks/arc_c.parquet"))
    assert questions.notices == []
    assert len(questions.rows) == len({item.question_id for item in questions.rows}) == 1172
    assert {item.answer_kind for item in questions.rows} == {"choice"}
    assert sum(item.answer.isdigit() for item in questions.rows) == 22


def test_the_authors_test_file_is_collapsed_from_its_repeated_rows(shared_dir):
    read_back = read_rows(source(shared_dir / "data/benchmarks/test.id.parquet"))
    assert len(read_back.rows) == 1590
    assert "6,023 rows hold 1,590 questions" in read_back.notices[0]
    repeated = {
        name: {item.num_rows for item in read_back.rows if item.data_source == name} for name in ("aime", "math")
    }
    assert repeated == {"aime": {32}, "math": {1}}
    assert {item.answer_kind for item in read_back.rows} == {"math"}
