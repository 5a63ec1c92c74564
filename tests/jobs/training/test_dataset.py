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
    with pytest.raises(DataError, match=r"a.jsonl, row 7, reward_model.ground_truth: .* row 2"):
        load(path)


GOLD = "row 2, reward_model.ground_truth: "


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (row(prompt=None), "row 2, prompt: "),
        (row(prompt="What is 2+3?"), "row 2, prompt: "),
        (row(prompt=[]), "row 2, prompt: "),
        (row(prompt=["What?"]), "row 2, prompt: "),
        (row(prompt=[{"role": "user"}]), "row 2, prompt, content: "),
        (row(prompt=[{"content": "What?"}]), "row 2, prompt, role: "),
        (row(prompt=[{"content": "Think.", "role": "system"}]), "row 2, prompt: "),
        (row(question="   "), "row 2, prompt, content: "),
        (row(reward_model=None), GOLD),
        (row(reward_model={"style": "rule"}), GOLD),
        (row(answer="  "), GOLD),
        (row(answer=True), GOLD),
        (row(answer=["5"]), GOLD),
        (row(data_source=None), "row 2, data_source: "),
        (row(data_source="arc_c", answer="K"), GOLD),
        ([1], "row 2: "),
    ],
)
def test_a_bad_row_is_named_with_its_file_and_field(tmp_path, bad, message):
    path = write_lines(tmp_path / "bad.jsonl", [ROWS[0], bad, ROWS[1]])
    with pytest.raises(DataError, match=f"bad.jsonl, {message}"):
        load(path)


@pytest.mark.parametrize(
    ("name", "content", "place"),
    [
        ("broken.jsonl", b'{"data_source": "a"', ", row 1: "),
        ("broken.jsonl", b"\xff\xfe\n", ", row 1: "),
        ("broken.jsonl", b"", ": "),
        ("broken.jsonl", b"\n\n", ": "),
        ("rows.csv", b"a,b\n", ": "),
        ("rows.parquet", b"not parquet", ": "),
        ("cut.jsonl.gz", gzip.compress(b"{}" * 1000, mtime=0)[:20], ", row 1: "),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_by_name_and_row(tmp_path, name, content, place):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=f"{name}{place}"):
        load(tmp_path / name)


def test_other_names_and_splits_that_are_not_there_are_refused(tmp_path):
    datasets.DatasetDict({"train": datasets.Dataset.from_list(ROWS)}).save_to_disk(str(tmp_path / "saved"))
    for name, split in ((tmp_path / "missing.parquet", "train"), ("nobody/nothing", "train"), ("saved", "test")):
        with pytest.raises(DataError):
            load(tmp_path / "saved" if name == "saved" else name, split=split)


def test_too_long_prompts_are_refused_or_dropped_and_counted(tmp_path):
    path = write_lines(tmp_path / "a.jsonl", [*ROWS, row("x" * 50, "1"), row("x" * 60, "2")])
    with pytest.raises(DataError, match=r"2 prompts longer than 40 tokens \(the longest, row 8, has 61\)"):
        load(path, max_prompt_tokens=40)
    dropping = source(path, too_long_prompts="drop")
    questions, rows = encode_rows(read_rows(dropping), dropping, TOKENIZER, 40)
    assert len(questions) == len(rows.rows) == 6
    assert len(rows.notices) == 1
    with pytest.raises(DataError):
        load(path, max_prompt_tokens=3, too_long_prompts="drop")


def test_the_first_questions_are_taken_and_asking_for_more_is_refused(tmp_path):
    path = write_lines(tmp_path / "a.jsonl", ROWS)
    assert [q.question_id for q in load(path, num_questions=2)] == [q.question_id for q in load(path)[:2]]
    with pytest.raises(DataError):
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
