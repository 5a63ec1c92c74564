import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from exgrpo.jobs.evaluation.benchmark_questions import load_benchmark
from exgrpo.jobs.evaluation.protocols import protocol_of
from exgrpo.jobs.specs.evaluation import BenchmarkChoice
from exgrpo.jobs.training.data_rows import DataError
from exgrpo.jobs.training.dataset import DataSource, read_rows
from tests.data_files import write_lines

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
    "HellaSwag": {"ctx": "Q?", "endings": OPTIONS, "label": "1"},
    "question with endings": {"question": "Q?", "endings": OPTIONS, "answer": "B"},
    "answer choices": {"question": "Q?", "answer_choices": OPTIONS, "answer": "green"},
    "an empty column at the end": {
        "question": "Q?",
        "op1": "red",
        "op2": "green",
        "op3": "blue",
        "op4": None,
        "cop": "B",
    },
    "numbered columns": {
        "question": "Q?",
        "option_1": "red",
        "option_2": "green",
        "option_3": "blue",
        "answer": "green",
    },
    "SIQA": {"question": "Q?", "answerA": "red", "answerB": "green", "answerC": "blue", "answer_idx": 1},
    **{
        f"columns such as {first}": {"question": "Q?", first: "red", second: "green", third: "blue", "answer": "B"}
        for first, second, third in (
            ("Option A:", "Option B:", "Option C:"),
            ("A)", "B)", "C)"),
            ("(A)", "(B)", "(C)"),
            ("A.", "B.", "C."),
            ("[a]", "[b]", "[c]"),
            ("option-1", "option-2", "option-3"),
            ("Option 1:", "Option 2:", "Option 3:"),
            ("choice.a", "choice.b", "choice.c"),
            ("choices/0", "choices/1", "choices/2"),
            ("Choice #1", "Choice #2", "Choice #3"),
            ("option_A_text", "option_B_text", "option_C_text"),
            ("A option", "B option", "C option"),
            ("Option  A ", "Option  B ", "Option  C "),
            ("1)", "2)", "3)"),
            ("Opción A", "Opción B", "Opción C"),
            ("选项A", "选项B", "选项C"),
            ("answer-a", "answer-b", "answer-c"),
        )
    },
    "a list with a sign in its name": {"question": "Q?", "Options:": OPTIONS, "answer": "B"},
    "options that are lists of one text": {
        "question": "Q?",
        "options": {"A": ["red"], "B": ["green"], "C": ["blue"]},
        "answer": "B",
    },
    "a list of lists": {"question": "Q?", "options": [["red"], ["green"], ["blue"]], "answer": "green"},
    "a list of labels with texts": {
        "question": "Q?",
        "options": [{"A": "red"}, {"B": "green"}, {"C": "blue"}],
        "answer": "B",
    },
    "columns with a space": {
        "question": "Q?",
        "Option A": "red",
        "Option B": "green",
        "Option C": "blue",
        "Answer": "B",
    },
    "small letters": {"question": "Q?", "a": "red", "b": "green", "c": "blue", "answer": "B"},
    "numbers as columns": {"question": "Q?", "0": "red", "1": "green", "2": "blue", "answer": "green"},
    "alternatives": {
        "question": "Q?",
        **{f"alternative_{x}": y for x, y in zip("abc", OPTIONS, strict=True)},
        "answer": "B",
    },
    "PIQA's columns": {"question": "Q?", "sol1": "red", "sol2": "green", "sol3": "blue", "answer": "green"},
    "a list of another name": {"question": "Q?", "mcq_options": OPTIONS, "num_options": 3, "answer": "B"},
    "a list in capitals": {"question": "Q?", "Choices": OPTIONS, "Answer": "B"},
    "possible answers": {"question": "Q?", "possible_answers": OPTIONS, "answer": "green"},
    "ReClor": {"question": "Q?", "answers": OPTIONS, "answer_index": 1},
}


VERL = {"data_source": "mine", "prompt": [{"role": "user", "content": "Q?"}], "reward_model": {"ground_truth": "2"}}
PLAIN = {"question": "Q?", "answer": "2"}


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
@pytest.mark.parametrize("row", [VERL, PLAIN])
@pytest.mark.parametrize(
    ("name", "value", "is_media"),
    [
        ("images", ["a.png"], True), ("image", {"bytes": None, "path": "a.png"}, True), ("image_1", "a.png", True),
        ("Image", "data:image/png;base64,AA==", True), ("decoded_image", "AA==", True), ("image_path", "a/b.png", True),
        ("video", "a.mp4", True), ("question_figure", "a.svg", True), ("images", [{"bytes": "A=", "path": None}], True),
        ("image", "", False), ("image", None, False), ("images", [], False), ("images", [None], False),
        ("image", {"bytes": None, "path": None}, False), ("has_image", True, False), ("num_images", 0, False),
        ("rationale_image", "a.png", False), ("imagery", "vivid", False),
    ],
)  # fmt: skip
def test_a_row_with_an_image_is_refused_by_row_and_field_and_one_with_an_empty_column_is_asked(
    tmp_path, ending, row, name, value, is_media
):
    path = tmp_path / f"data.{ending}"
    other = json.loads(json.dumps(row).replace("Q?", "R?"))
    rows = [other | {name: None}, row | {name: value}]
    if ending == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        write_lines(path, rows)
    choice = BenchmarkChoice(name="mine", source=str(path))
    for read in (lambda: load_benchmark(choice, protocol_of(choice)), lambda: read_rows(DataSource(str(path)))):
        if is_media:
            with pytest.raises(DataError, match=rf"data\.{ending}, row 2, {name}: models are asked the text"):
                read()
        else:
            assert read()


def load(tmp_path, rows, **fields):
    path = write_lines(tmp_path / "mine.jsonl", rows)
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
        ({"problem": "Q?", "solution": "$x=\\boxed{1}$ or $x=\\boxed{3}$."}, "1, 3"),
        ({"problem": "Q?", "solution": "First $\\boxed{1}$. So it is $\\boxed{3}$."}, "3"),
        ({"problem": "Q?", "answer": 7.0}, "7"),
        ({"prompt": "Q?", "answer": "7"}, "7"),
        ({"question": "Q?", "answer": "7", "answers": ["7", "seven"]}, "7"),
        ({"question": "Q?", "answer": "7", "a": 3, "b": 4, "num_choices": 0}, "7"),
        ({"question": "Q?", "answer": "7", "sent1": "s", "sent2": "t", "hint_1": "u", "hint_2": "v"}, "7"),
        ({"question": "Q?", "answer": "7", "x": "3", "y": "4", "option_b": "a single one"}, "7"),
    ],
)
def test_a_free_answer_is_read_from_where_its_layout_has_it(tmp_path, row, answer):
    (question,) = load(tmp_path, [row]).questions
    assert (question.text, question.answer, question.answer_kind) == ("Q?", answer, "math")


@pytest.mark.parametrize("name", ["option_{}", "choice{}", "ending_{}", "Option{}", "op_{}"])
def test_ten_columns_are_ten_options_in_the_order_of_their_numbers(tmp_path, name):
    row = {"question": "Q?"} | {name.format(number): f"text {number}" for number in (10, 2, 3, 4, 5, 6, 7, 8, 9, 1)}
    (question,) = load(tmp_path, [row | {"answer": "text 10"}]).questions
    lines = "".join(f"{label}) text {number}\n" for number, label in enumerate("ABCDEFGHIJ", start=1))
    assert (question.text, question.answer) == (f"Q?\n\n{lines}", "J")


@pytest.mark.parametrize(
    ("columns", "names"),
    [
        ([f"option_{number}" for number in range(1, 12)], "option_11: has 11 options"),
        ([f"choice{letter}" for letter in "abcdefghijk"], "choicek: has 11 options"),
        (list("ABCDEFGHIJKL"), "L: has 12 options"),
    ],
)
def test_more_columns_than_can_be_graded_are_refused_by_column(tmp_path, columns, names):
    row = {"question": "Q?", "answer": "A"} | {column: f"text {column}" for column in columns}
    with pytest.raises(DataError, match=f"row 1, {names}"):
        load(tmp_path, [row])


def test_a_column_without_a_text_between_others_is_refused_by_column(tmp_path):
    row = {"question": "Q?", "option_a": "red", "option_b": None, "option_c": "blue", "answer": "C"}
    with pytest.raises(DataError, match="row 1, option_b: expected a text"):
        load(tmp_path, [row])


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        (["option_1", "option_2", "option_4"], "option_4: expected a column for each option before it"),
        (["A", "B", "D"], "D: expected a column"),
        (["choice_a", "choice_d"], "choice_d: expected a column"),
        (["answer0", "answer2"], "answer2: expected a column"),
        (["distractor1", "distractor2", "distractor3"], "distractor1: is an option"),
    ],
)
def test_columns_that_are_not_all_options_are_refused_by_column(tmp_path, columns, why):
    row = {"question": "Q?", "answer": "A"} | {column: f"text {column}" for column in columns}
    with pytest.raises(DataError, match=f"row 1, {why}"):
        load(tmp_path, [row])


@pytest.mark.parametrize(
    ("options", "gold"), [("BCA", "A"), ("CAB", "B"), ("BADC", "C"), ("DCBA", "D"), ("BCDEA", "E")]
)
def test_options_that_are_letters_are_asked_for_unless_their_number_is_given(tmp_path, options, gold):
    row = {"question": "Q?", "options": list(options)}
    with pytest.raises(DataError, match=r"may mean option .*the option's label.*the option's text.*answer_idx"):
        load(tmp_path, [row | {"answer": gold}])
    numbered = load(tmp_path, [row | {"answer_idx": options.index(gold)}]).questions[0]
    assert numbered.answer == "ABCDE"[options.index(gold)]
    assert load(tmp_path, [row | {"answerKey": gold}]).questions[0].answer == gold
    in_order = load(tmp_path, [{"question": "Q?", "options": sorted(options), "answer": gold}]).questions[0]
    assert in_order.answer == gold


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


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"first option": "red", "second option": "blue"}, "row 1, first option: looks like one option of several"),
        ({"Option_one": "red", "Option_two": "blue"}, "row 1, Option_one: looks like one option of several"),
        ({"choiceText1": "red", "choiceText2": "blue"}, "row 1, choiceText1: looks like one option of several"),
        ({"correct_choice": "red", "wrong_choice": "blue"}, "row 1, correct_choice: looks like one option of several"),
        ({"alternative i": "x", "alternative ii": "y"}, "row 1, alternative i: looks like one option of several"),
        ({"my choice x": "x", "my choice y": "y"}, "row 1, my choice x: looks like one option of several"),
        ({"选项一": "red", "选项二": "blue"}, "row 1, 选项一: looks like one option of several"),
        ({"A)": "red", "(A)": "blue", "B)": "green"}, r"row 1, \(A\): is the same option as A\)"),
        ({"Option A": "red", "option_a": "blue"}, "row 1, option_a: is the same option as Option A"),
        ({"options": {"A": {"text": "red"}, "B": {"text": "blue"}}}, "row 1, options: expected a text for each option"),
        ({"options": {"A": ["red", "blue"], "B": ["green"]}}, "row 1, options: expected a text for each option"),
        ({"options": [["A", "red"], ["B", "blue"]]}, "row 1, options: expected a text for each option"),
        ({"choices": [{"label": "A", "text": {"en": "x"}}, {"label": "B", "text": "y"}]}, "row 1, choices: expected a"),
    ],
)  # fmt: skip
def test_options_that_cannot_be_told_are_refused_by_column(tmp_path, row, sentence):
    with pytest.raises(DataError, match=sentence):
        load(tmp_path, [{"question": "Q?", **row, "answer": "A"}])


def test_columns_about_a_choice_are_no_options(tmp_path):
    row = {"question": "2 + 2?", "choice_type": "single", "option_note": "none", "optional": "x", "optional_2": "y"}
    assert [question.text for question in load(tmp_path, [row | {"answer": "4"}]).questions] == ["2 + 2?"]


@pytest.mark.parametrize(
    "columns",
    [
        ("adoption rate", "adoption cost"),
        ("adoption_1", "adoption_2"),
        ("happy ending", "sad ending"),
        ("spending 1", "spending 2"),
        ("candidate name", "candidate party"),
        ("option price", "option date"),
        ("choice", "choice_note"),
    ],
)
def test_columns_whose_words_only_resemble_options_are_no_options(tmp_path, columns):
    row = {"question": "2 + 1?", "answer": "3", **dict.fromkeys(columns, "x")}
    assert [question.answer for question in load(tmp_path, [row]).questions] == ["3"]


@pytest.mark.parametrize("gold", ["II", "(II)", "BC", "K", "A and B", "first"])
@pytest.mark.parametrize("field", ["answer", "target", "label", "gold", "answerKey"])
def test_a_gold_answer_that_is_no_label_is_named_by_its_own_field(tmp_path, gold, field):
    row = {"question": "Q?", field: gold}
    with pytest.raises(DataError, match=rf"row 1, {field}: expected an option's label"):
        load(tmp_path, [row], answer_kind="choice")
    with pytest.raises(DataError, match=rf"row 1, {field}: expected an option label"):
        read_rows(DataSource(str(tmp_path / "mine.jsonl"), answer_kind="choice"))
