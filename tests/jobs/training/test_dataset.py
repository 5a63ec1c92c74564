import gzip
import math
import re

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from exgrpo.jobs.evaluation.benchmark_questions import load_benchmark
from exgrpo.jobs.evaluation.protocols import protocol_of
from exgrpo.jobs.specs.evaluation import BenchmarkChoice
from exgrpo.jobs.tasks.chains.demonstrators import make_tokenizer
from exgrpo.jobs.training.data_rows import DataError
from exgrpo.jobs.training.dataset import DataSource, encode_rows, leak_notices, read_rows
from exgrpo.jobs.training.templates import TemplateName
from tests.data_files import write_lines
from tests.jobs.training.format_tokenizer import make_format_tokenizer

pytestmark = pytest.mark.slow

TOKENIZER = make_tokenizer()


def row(question="What is 2+3?", answer="5", data_source="openr1", **changes):
    content = {
        "data_source": data_source,
        "prompt": [{"content": "Think.", "role": "system"}, {"content": question, "role": "user"}], "ability": "math",
        "reward_model": {"ground_truth": answer, "style": "rule"}, "extra_info": {"index": 0, "split": "default"},
    }  # fmt: skip
    return {**content, **changes}


ROWS = [row(f"What is {number}+3?", str(number + 3)) for number in range(6)]


def source(path, **changes) -> DataSource:
    return DataSource(**{"source": str(path), "template": TemplateName.COMPACT, **changes})


def load(path, max_prompt_tokens=100, **changes):
    asked = source(path, **changes)
    return encode_rows(read_rows(asked), asked, TOKENIZER, max_prompt_tokens)[0]


def test_every_kind_of_source_gives_the_same_questions(tmp_path):
    lines = write_lines(tmp_path / "rows.jsonl", ROWS)
    parquet = tmp_path / "rows.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS), parquet)
    of_windows = tmp_path / "windows.jsonl"
    of_windows.write_bytes(b"\xef\xbb\xbf" + lines.read_bytes().replace(b"\n", b"\r\n"))
    zipped = tmp_path / "rows.jsonl.gz"
    zipped.write_bytes(gzip.compress(lines.read_bytes()))
    saved, saved_splits = tmp_path / "saved", tmp_path / "saved_splits"
    datasets.Dataset.from_list(ROWS).save_to_disk(str(saved))
    datasets.DatasetDict({"train": datasets.Dataset.from_list(ROWS)}).save_to_disk(str(saved_splits))
    folder = tmp_path / "folder"
    folder.mkdir()
    pq.write_table(pa.Table.from_pylist(ROWS), folder / "train-00000.parquet")
    loaded = [load(path) for path in (lines, of_windows, parquet, zipped, saved, saved_splits, folder)]
    assert [q.question_id for q in loaded[0]] == [q.question_id for q in load(lines)]
    for questions in loaded:
        assert [q.index for q in questions] == list(range(6))
        assert [(q.question_id, q.prompt_text, q.answer) for q in questions] == [
            (q.question_id, q.prompt_text, q.answer) for q in loaded[0]
        ]


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
@pytest.mark.parametrize(
    ("raw", "asked", "answer", "kind"),
    [
        ({"problem": "1 + 1?", "answer": 2.0, "level": 5}, "1 + 1?", "2", "math"),
        ({"question": "How many?", "answer": "1000 + 234\n#### 1,234"}, "How many?", "1234", "math"),
        ({"problem": "1 + 1?", "solution": "It is \\boxed{2}."}, "1 + 1?", "2", "math"),
        ({"question": "2 + 3?", "answer": "5", "solution_1": "2 + 3", "solution_2": "3 + 2"}, "2 + 3?", "5", "math"),
        ({"question": "2 + 3?", "answer": "5", "answer_1": "6", "answer_2": "4"}, "2 + 3?", "5", "math"),
        ({"question": "Which?", "A": "no", "B": "yes", "answer": "B"}, "Which?\n\nA) no\nB) yes\n", "B", "choice"),
    ],
)
def test_rows_in_a_published_layout_are_trained_on_as_they_are_scored(tmp_path, suffix, raw, asked, answer, kind):
    path = tmp_path / f"mine{suffix}"
    if suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist([raw]), path)
    else:
        write_lines(path, [raw])
    (read,) = read_rows(DataSource(str(path))).rows
    assert (read.question_text, read.answer, read.answer_kind, read.data_source) == (asked, answer, kind, path.name)
    choice = BenchmarkChoice(name="mine", source=str(path))
    benchmark = load_benchmark(choice, protocol_of(choice))
    assert [(item.text, item.answer, item.answer_kind) for item in benchmark.questions] == [(asked, answer, kind)]


def test_an_answer_that_is_the_label_of_one_option_and_the_text_of_another_is_refused(tmp_path):
    rows = [{"question": "Which?", "options": ["B", "A", "C"], "answer": answer} for answer in ("C", "A")]
    with pytest.raises(DataError, match="row 2, answer: 'A' is the label of one option and the text of another"):
        read_rows(DataSource(str(write_lines(tmp_path / "mine.jsonl", rows))))


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
        "data_source": "openr1", "answer_kind": "math", "ability": "math", "question": "What is 2+3?", "row": 3,
        "num_rows": 1,
    }  # fmt: skip


def test_a_system_message_that_a_chat_template_leaves_out_is_counted_and_one_that_it_shows_is_not(tmp_path):
    path = source(write_lines(tmp_path / "a.jsonl", ROWS), template=TemplateName.CHAT)
    notices = []
    for shown in ("messages", "messages[1:]"):
        tokenizer = make_tokenizer()
        tokenizer.chat_template = "{% for m in SHOWN %}{{ m.content }}{% endfor %}".replace("SHOWN", shown)
        notices.append(encode_rows(read_rows(path), path, tokenizer, 200)[1].notices)
    assert notices[0] == []
    assert notices[1] == ["a.jsonl: 6 questions have a system message, which the template chat does not use."]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Where is 1+3?", "Where is\u00a01+3?\u200b"),
        ("caf\u00e9 1+3?", "cafe\u0301 1+3?"),
        ("Where is 1+3?", "Where is \uff11\uff0b\uff13\uff1f"),
    ],
)
def test_questions_that_differ_in_space_unicode_form_or_origin_are_one(tmp_path, first, second):
    path = write_lines(tmp_path / "a.jsonl", [ROWS[0], row(first, "4"), row(second, "4", data_source="else")])
    assert [question.metadata["num_rows"] for question in load(path)] == [1, 2]
    path = write_lines(tmp_path / "a.jsonl", [ROWS[0], row(first, "4"), row(second, "5")])
    with pytest.raises(DataError, match=r"a.jsonl, row 3, reward_model.ground_truth: '5' contradicts '4' of row 2"):
        load(path)


def test_powers_indices_and_fractions_are_not_plain_digits(tmp_path):
    texts = ["What is 3\u00b2?", "What is 32?", "What is 3\u2082?", "What is 3\u00bd?", "What is 31/2?"]
    path = write_lines(tmp_path / "a.jsonl", [row(text, str(index)) for index, text in enumerate(texts)])
    assert len(load(path)) == 5


@pytest.mark.parametrize("place", [0, 1])
def test_control_tokens_of_the_model_in_a_row_are_refused_and_think_tags_are_not(tmp_path, place):
    tokenizer = make_format_tokenizer(["What is 2+3?"], vocabulary_size=300)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_end|>", "<think>"]})
    rows = [row(), row("What is 2+4?")]
    path = source(write_lines(tmp_path / "a.jsonl", rows))
    rows[1]["prompt"][place]["content"] += " <think>"
    write_lines(tmp_path / "a.jsonl", rows)
    assert len(encode_rows(read_rows(path), path, tokenizer, 200)[0]) == 2
    rows[1]["prompt"][place]["content"] += "<|im_end|>"
    write_lines(tmp_path / "a.jsonl", rows)
    with pytest.raises(DataError, match=r"^a.jsonl, row 2, prompt: holds '<\|im_end\|>'"):
        encode_rows(read_rows(path), path, tokenizer, 200)


def test_questions_of_a_benchmark_that_are_trained_on_are_counted(tmp_path):
    questions = load(write_lines(tmp_path / "a.jsonl", ROWS))
    asked = load(write_lines(tmp_path / "b.jsonl", [row("What is  1+3?", "4"), row("What is 9+3?", "12")]))
    assert leak_notices(questions, {"mine": asked, "none": asked[1:]}) == [
        "validation.benchmarks.mine: 1 of 2 questions are trained on too."
    ]


GOLD = "row 2, reward_model.ground_truth: "


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (row(prompt=None), "row 2, prompt: "), (row(prompt=[{"role": "user"}]), "row 2, prompt, content: "),
        (row(prompt=[{"content": "What?"}]), "row 2, prompt, role: "),
        (row(prompt=[{"content": "Think.", "role": "system"}]), "row 2, prompt: "),
        (row(question="   "), "row 2, prompt, content: "), (row(reward_model=None), GOLD), (row(answer=True), GOLD),
        (row(data_source=None), "row 2, data_source: "), (row(data_source="arc_c", answer="K"), GOLD),
        (row(answer=math.nan), GOLD), (row(answer="NaN"), GOLD), (row(answer="5\ud83d"), GOLD), ([1], "row 2: "),
        ({"task": "1+1?", "solution": "2"}, "row 2: "),
    ],
)  # fmt: skip
def test_a_bad_row_is_named_with_its_file_and_field(tmp_path, bad, message):
    path = write_lines(tmp_path / "bad.jsonl", [ROWS[0], bad, ROWS[1]])
    with pytest.raises(DataError, match=f"bad.jsonl, {message}"):
        load(path)


def test_several_bad_rows_are_named_together_and_counted(tmp_path):
    path = write_lines(tmp_path / "bad.jsonl", [{}, ROWS[0], *[{}] * 4])
    with pytest.raises(DataError) as refused:
        load(path)
    found = re.findall(r"bad.jsonl, row (\d)", str(refused.value))
    assert (found, str(refused.value)[-17:]) == (["1", "3", "4"], " And 2 more rows.")


@pytest.mark.parametrize(
    ("name", "content", "place"),
    [
        ("broken.jsonl", b'{"data_source": "a"', ", row 1: "), ("broken.jsonl", b"\xff\xfe\n", ", row 1: "),
        ("broken.jsonl", b"", ": "), ("rows.csv", b"a,b\n", ": "), ("rows.parquet", b"not parquet", ": "),
        ("cut.jsonl.gz", gzip.compress(b"{}" * 1000, mtime=0)[:20], ", row 1: "),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_read_is_refused_by_name_and_row(tmp_path, name, content, place):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=f"{name}{place}"):
        load(tmp_path / name)


def test_a_table_with_two_columns_of_one_name_is_refused_by_the_name(tmp_path):
    pq.write_table(pa.table([["1 + 1?"], ["2"], ["3"]], ["problem", "answer", "answer"]), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a.parquet: answer: two columns have this name; rename one of them."):
        load(tmp_path / "a.parquet")


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
    assert rows.notices[0].endswith("were dropped.")
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
