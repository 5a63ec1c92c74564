import json

import pytest

from jobs.evaluation.benchmark_questions import load_benchmark
from jobs.evaluation.protocols import protocol_of
from jobs.specs.evaluation import BenchmarkChoice
from jobs.training.data_rows import DataError

OPTIONS = ["red", "green", "blue"]
ASKED = "Q?\n\nA) red\nB) green\nC) blue\n"
LAST = {"question": "R?", "options": OPTIONS}
LAYOUTS = {
    "MMLU": {"question": "Q?", "subject": "s", "choices": OPTIONS, "answer": 1},
    "MMLU-Pro": {"question": "Q?", "options": OPTIONS, "answer": "B", "answer_index": 1},
    "ARC": {"question": "Q?", "choices": {"label": ["A", "B", "C"], "text": OPTIONS}, "answerKey": "B"},
    "ARC as JSON lines": {
        "question": {"stem": "Q?", "choices": [{"label": x, "text": y} for x, y in zip("ABC", OPTIONS, strict=True)]},
        "answerKey": "B",
    },
    "MedQA": {
        "question": "Q?",
        "options": dict(zip("ABC", OPTIONS, strict=True)),
        "answer": "green",
        "answer_idx": "B",
    },
    "MedQA with endings": {"sent1": "Q?", "ending0": "red", "ending1": "green", "ending2": "blue", "label": 1},
    "RACE": {"article": "Passage.", "question": "Q?", "options": OPTIONS, "answer": "B"},
    "CMMLU": {"Question": "Q?", "A": "red", "B": "green", "C": "blue", "Answer": "B"},
    "AQuA": {"question": "Q?", "options": ["A)red", "B)green", "C)blue"], "rationale": "r", "correct": "B"},
    "Inspect": {"input": "Q?", "choices": OPTIONS, "target": "B"},
    "Inspect by text": {"input": "Q?", "choices": OPTIONS, "target": ["green"]},
    "numbered columns": {
        "question": "Q?",
        "option_1": "red",
        "option_2": "green",
        "option_3": "blue",
        "answer": "green",
    },
}


def load(tmp_path, rows, **fields):
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    choice = BenchmarkChoice(name="mine", source=str(path), **fields)
    return load_benchmark(choice, protocol_of(choice))


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_published_layout_is_asked_with_its_options_and_has_its_gold(tmp_path, name):
    (question,) = load(tmp_path, [LAYOUTS[name]]).questions
    passage = "Passage.\n\n" if name == "RACE" else ""
    assert (question.text, question.answer, question.answer_kind) == (passage + ASKED, "B", "choice")


@pytest.mark.parametrize(("first", "answers"), [(0, "AC"), (1, "AB")])
def test_medmcqa_counts_from_0_on_the_hub_and_from_1_in_its_own_files(tmp_path, first, answers):
    row = {"opa": "red", "opb": "green", "opc": "blue"}
    rows = [row | {"question": f"{cop}?", "cop": cop} for cop in ((0, 2) if first == 0 else (1, 2))]
    rows += [row | {"question": "last", "cop": 3}] if first else []
    assert "".join(item.answer for item in load(tmp_path, rows).questions) == answers + "C" * first


@pytest.mark.parametrize(
    ("row", "answer"),
    [
        ({"question": "Q?", "answer": "He has 1,200 + 34.\n#### 1,234"}, "1234"),
        ({"question": "Q?", "answer": "Both.\n#### (1, 2)"}, "(1, 2)"),
        ({"problem": "Q?", "solution": "So $x = \\boxed{\\frac12}$.", "level": "1"}, "\\frac12"),
        ({"problem": "Q?", "answer": 7.0}, "7"),
        ({"prompt": "Q?", "answer": "7"}, "7"),
    ],
)
def test_a_free_answer_is_read_from_where_its_layout_has_it(tmp_path, row, answer):
    (question,) = load(tmp_path, [row]).questions
    assert (question.text, question.answer, question.answer_kind) == ("Q?", answer, "math")


@pytest.mark.parametrize(("golds", "answers"), [((0, 1), "AB"), ((1, 3), "AC")])
def test_whether_numbers_count_from_0_or_1_is_read_off_the_whole_file(tmp_path, golds, answers):
    rows = [LAST | {"question": f"{gold}?", "answer": gold} for gold in golds]
    assert "".join(item.answer for item in load(tmp_path, rows).questions) == answers


def test_numbers_that_may_count_from_0_or_1_are_asked_for(tmp_path):
    with pytest.raises(DataError, match=r"mine\.jsonl, row 1, answer: .*index_from"):
        load(tmp_path, [LAST | {"answer": 1}])
    for index_from, answer in ((0, "B"), (1, "A")):
        assert load(tmp_path, [LAST | {"answer": 1}], index_from=index_from).questions[0].answer == answer


def test_an_option_that_is_a_number_is_no_index_where_one_row_says_so(tmp_path):
    rows = [{"question": f"{gold}?", "options": ["1", "4", "9"], "answer": gold} for gold in ("1", "9")]
    assert [item.answer for item in load(tmp_path, rows).questions] == ["A", "C"]


@pytest.mark.parametrize(
    "change",
    [
        {"answer": "purple"},
        {"answer": float("nan")},
        {"options": list("abcdefghijkl")},
        {"options": {"label": ["A", "B"], "text": ["a"]}},
        {"Question": "q", "Correct Answer": "a"},
    ],
)
def test_a_row_that_cannot_be_asked_or_graded_is_refused_by_row(tmp_path, change):
    with pytest.raises(DataError, match=r"mine\.jsonl, row 2"):
        load(tmp_path, [LAST | {"answer": "A"}, LAST | {"question": "S?", "answer": "B"} | change])
