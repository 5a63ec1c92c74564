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
BY_LABEL = dict(zip("ABC", OPTIONS, strict=True))
NAMES = (
    "op1 op2 op3", "option_1 option_2 option_3", "a b c", "0 1 2", "alternative_a alternative_b alternative_c",
    "sol1 sol2 sol3", "A) B) C)", "(A) (B) (C)", "A. B. C.", "[a] [b] [c]", "option-1 option-2 option-3",
    "choice.a choice.b choice.c", "choices/0 choices/1 choices/2", "option_A_text option_B_text option_C_text",
    "1) 2) 3)", "选项A 选项B 选项C", "answer-a answer-b answer-c",
)  # fmt: skip
SPACED = ("Option A:", "Option 1:", "Choice #1", "A option", "Option  A ", "Opción A", "Option A")
COLUMNS = [*(names.split() for names in NAMES)]
COLUMNS += [[name.translate(str.maketrans("A1", pair)) for pair in ("A1", "B2", "C3")] for name in SPACED]
LAYOUTS = {
    "MMLU": {"question": "Q?", "subject": "s", "choices": OPTIONS, "answer": 1},
    "MMLU-Pro": {"question": "Q?", "options": OPTIONS, "answer": "B", "answer_index": 1},
    "ARC": {"question": "Q?", "choices": {"label": ["A", "B", "C"], "text": OPTIONS}, "answerKey": "B"},
    "ARC as JSON lines": {
        "question": {"stem": "Q?", "choices": [{"label": x, "text": y} for x, y in BY_LABEL.items()]}, "answerKey": "B",
    },
    "MedQA": {"question": "Q?", "options": BY_LABEL, "answer": "green", "answer_idx": "B"},
    "MedQA with endings": {"sent1": "Q?", "ending0": "red", "ending1": "green", "ending2": "blue", "label": 1},
    "RACE": {"article": "Passage.", "question": "Q?", "options": OPTIONS, "answer": "B"},
    "CMMLU": {"Question": "Q?", **BY_LABEL, "Answer": "B"},
    "AQuA": {"question": "Q?", "options": ["A)red", "B)green", "C)blue"], "rationale": "r", "correct": "B"},
    "Inspect": {"input": "Q?", "choices": OPTIONS, "target": "B"},
    "Inspect by text": {"input": "Q?", "choices": OPTIONS, "target": ["green"]},
    "HellaSwag": {"ctx": "Q?", "endings": OPTIONS, "label": "1"},
    "question with endings": {"question": "Q?", "endings": OPTIONS, "answer": "B"},
    "answer choices": {"question": "Q?", "answer_choices": OPTIONS, "answer": "green"},
    "an empty column at the end": {
        "question": "Q?", "op1": "red", "op2": "green", "op3": "blue", "op4": None, "cop": "B",
    },
    "SIQA": {"question": "Q?", "answerA": "red", "answerB": "green", "answerC": "blue", "answer_idx": 1},
    **{
        f"columns such as {names[0]}": {
            "question": "Q?", **dict(zip(names, OPTIONS, strict=True)), "answer": "green" if "1" in str(names) else "B",
        }
        for names in COLUMNS
    },
    "a list with a sign in its name": {"question": "Q?", "Options:": OPTIONS, "answer": "B"},
    "options that are lists of one text": {
        "question": "Q?", "options": {label: [text] for label, text in BY_LABEL.items()}, "answer": "B",
    },
    "a list of lists": {"question": "Q?", "options": [[text] for text in OPTIONS], "answer": "green"},
    "a list of labels with texts": {
        "question": "Q?", "options": [{label: text} for label, text in BY_LABEL.items()], "answer": "B",
    },
    "a list of another name": {"question": "Q?", "mcq_options": OPTIONS, "num_options": 3, "answer": "B"},
    "a list in capitals": {"question": "Q?", "Choices": OPTIONS, "Answer": "B"},
    "possible answers": {"question": "Q?", "possible_answers": OPTIONS, "answer": "green"},
    "ReClor": {"question": "Q?", "answers": OPTIONS, "answer_index": 1},
}  # fmt: skip

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
        {"answer": "purple"}, {"answer": float("nan")}, {"options": list("abcdefghijkl")},
        {"options": {"label": ["A", "B"], "text": ["a"]}}, {"Question": "q", "Correct Answer": "a"},
    ],
)  # fmt: skip
def test_a_row_that_cannot_be_asked_or_graded_is_refused_by_row(tmp_path, change):
    with pytest.raises(DataError, match=r"mine\.jsonl, row 2"):
        load(tmp_path, [LAST | {"answer": "A"}, LAST | {"question": "S?", "answer": "B"} | change])


def texts(*columns):
    return {column: f"text {column}" for column in columns}


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        *((dict.fromkeys(columns, "x"), f"{columns[0]}: looks like one option of several") for columns in (
            ("first option", "second option"), ("Option_one", "Option_two"), ("choiceText1", "choiceText2"),
            ("correct_choice", "wrong_choice"), ("alternative i", "alternative ii"), ("my choice x", "my choice y"),
            ("选项一", "选项二"),
        )),
        ({"A)": "red", "(A)": "blue", "B)": "green"}, r"\(A\): is the same option as A\)"),
        ({"Option A": "red", "option_a": "blue"}, "option_a: is the same option as Option A"),
        ({"options": {"A": {"text": "red"}, "B": {"text": "blue"}}}, "options: expected a text for each option"),
        ({"options": {"A": ["red", "blue"], "B": ["green"]}}, "options: expected a text for each option"),
        ({"options": [["A", "red"], ["B", "blue"]]}, "options: expected a text for each option"),
        ({"choices": [{"label": "A", "text": {"en": "x"}}, {"label": "B", "text": "y"}]}, "choices: expected a"),
        (texts(*(f"option_{number}" for number in range(1, 12))), "option_11: has 11 options"),
        (texts(*(f"choice{letter}" for letter in "abcdefghijk")), "choicek: has 11 options"),
        (texts(*"ABCDEFGHIJKL"), "L: has 12 options"),
        (texts("option_a", "option_b", "option_c") | {"option_b": None}, "option_b: expected a text"),
        (texts("option_1", "option_2", "option_4"), "option_4: expected a column for each option before it"),
        (texts("A", "B", "D"), "D: expected a column"), (texts("choice_a", "choice_d"), "choice_d: expected a column"),
        (texts("answer0", "answer2"), "answer2: expected a column"),
        (texts("distractor1", "distractor2", "distractor3"), "distractor1: is an option"),
    ],
)  # fmt: skip
def test_options_that_cannot_be_told_are_refused_by_column(tmp_path, row, sentence):
    with pytest.raises(DataError, match=f"row 1, {sentence}"):
        load(tmp_path, [{"question": "Q?", **row, "answer": "A"}])


@pytest.mark.parametrize(
    "columns",
    [
        ("adoption rate", "adoption cost"), ("adoption_1", "adoption_2"), ("happy ending", "sad ending"),
        ("spending 1", "spending 2"), ("candidate name", "candidate party"), ("option price", "option date"),
        ("choice", "choice_note"), ("choice_type", "option_note", "optional", "optional_2"),
    ],
)  # fmt: skip
def test_columns_whose_words_only_resemble_options_are_no_options(tmp_path, columns):
    row = {"question": "2 + 1?", "answer": "3", **dict.fromkeys(columns, "x")}
    assert [(question.text, question.answer) for question in load(tmp_path, [row]).questions] == [("2 + 1?", "3")]


@pytest.mark.parametrize("gold", ["II", "(II)", "BC", "K", "A and B", "first"])
@pytest.mark.parametrize("field", ["answer", "target", "label", "gold", "answerKey"])
def test_a_gold_answer_that_is_no_label_is_named_by_its_own_field(tmp_path, gold, field):
    row = {"question": "Q?", field: gold}
    with pytest.raises(DataError, match=rf"row 1, {field}: expected an option's label"):
        load(tmp_path, [row], answer_kind="choice")
    with pytest.raises(DataError, match=rf"row 1, {field}: expected an option label"):
        read_rows(DataSource(str(tmp_path / "mine.jsonl"), answer_kind="choice"))
