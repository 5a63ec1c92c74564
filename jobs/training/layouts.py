"""Published layouts of data sets: where a row has its question, options and gold answer.

A gold answer names an option by label, by text or by number; whether numbers count from 0 or from 1 is decided over the
whole file, and asked of the user where both fit.
"""

import math
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from string import ascii_lowercase
from typing import Any

from exgrpo.jobs.specs.base import DeclaredKind
from exgrpo.jobs.tasks.grading.boxed_answers import joined_boxes
from exgrpo.jobs.training.data_rows import DataError, DataRow, check_row, check_text, is_of_verl, refuse_images
from exgrpo_core.errors import shown

RawRow = Mapping[str, Any]
LETTERS = "ABCDEFGHIJ"
"""Labels that graders know."""
_QUESTIONS = (
    "problem",
    "question",
    "Question",
    "input",
    "query",
    "question_stem",
    "startphrase",
    "sent1",
    "prompt",
    "ctx",
)
_IDENTITIES = ("question_id", "unique_id", "Record ID", "id")
_GOLDS = ("answer", "answerKey", "Answer", "answer_idx", "answer_index", "target", "label", "gold", "correct", "cop")
_COUNTS_FROM_0 = frozenset({"answer_idx", "answer_index"})
"""Fields whose numbers count options from 0 wherever they are published; so does `answer` next to a list `choices`."""
_PASSAGES = ("article", "passage", "context", "support", "premise")
"""Columns that a question is about; they are asked before it."""
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_STEM = (
    r"options?|(?:answer )?choices?|ending|opt?|answer|alternative|candidate|sol(?:ution)?|distractor|opci[oó]n|选项"
)
_OPTION_COLUMN = re.compile(
    rf"(?P<stem>(?:{_STEM})?) ?(?P<end>[a-z]|\d{{1,3}})(?: ?text)?|(?P<last>[a-z]|\d{{1,3}}) (?P<after>{_STEM})"
)
_LIKE_OPTION = re.compile(r"options?|choices?|alternativ[ae]s?|candidat[aeo]?s?|endings?|opci[oó]n|opt|选项")
"""A word in the names of columns with options."""
_PLACE = re.compile(
    r"[a-z]|\d{1,3}|[ivx]{2,4}|one|two|three|four|five|first|second|third|fourth|fifth|last|correct|incorrect|wrong|right|"
    r"true|false|[一二三四五甲乙丙丁]"
)
"""A word that tells the columns of options apart."""
_ALSO_SOLUTIONS = {"answer", "sol", "solution"}
"""Stems of columns that hold several solutions of one question in other files."""
_OPTION_LISTS = ("options", "choices", "endings", "answer_choices", "candidates", "alternatives")
_OPTION_LIST = re.compile(r"(?:\w+ )?(?:options|choices|endings|candidates|alternatives)|possible answers")
_FINAL_ANSWER = re.compile(r"####\s*(\S.*)")


class GoldReading(StrEnum):
    """How the gold answers of a file name their options."""

    LABEL = "the option's label"
    FROM_0 = "the option's number, counted from 0"
    FROM_1 = "the option's number, counted from 1"
    TEXT = "the option's text"


@dataclass(frozen=True, slots=True)
class PlainRow:
    """A row that is not in verl's schema. `options` are labels and texts; a free answer has none."""

    number: int
    identity: str | None
    question: str
    options: tuple[tuple[str, str], ...]
    gold: object
    gold_field: str
    counts_from_0: bool = False
    """Numbers do in this layout wherever it is published."""
    odd: str | None = None

    @property
    def text(self) -> str:
        """The question with its options, as it is asked."""
        if not self.options:
            return self.question
        lines = "".join(f"{label}) {text}\n" for label, text in self.options)
        return f"{self.question}\n\n{lines}"

    def label(self, reading: GoldReading) -> str | None:
        """Return the label of the gold option, None where the gold answer names none in this reading."""
        gold = gold_text(self.gold)
        labels = [label for label, _ in self.options]
        if reading is GoldReading.LABEL:
            bare = gold.strip("(). ")
            return next((label for label in labels if label == bare or label == bare.upper()), None)
        if reading is GoldReading.TEXT:
            same = [label for label, text in self.options if text.strip() == gold]
            return same[0] if len(same) == 1 else None
        if not re.fullmatch(r"\d+", gold):
            return None
        index = int(gold) - (reading is GoldReading.FROM_1)
        return labels[index] if 0 <= index < len(labels) else None


def read_row(number: int, raw: RawRow, origin: str) -> PlainRow:
    """Return a row of a known layout.

    Raises:
        DataError: Its columns are of none, or it has more options than can be graded.
    """
    where = f"{origin}, row {number}"
    identity = next((str(raw[key]) for key in _IDENTITIES if raw.get(key)), None)
    if isinstance(raw.get("question"), dict):  # ARC as JSON lines, OpenBookQA
        raw = {**raw, **raw["question"], "question": raw["question"].get("stem")}
    refuse_images(raw, where)
    if "Question" in raw and "Correct Answer" in raw:
        return _gpqa(number, identity, raw, where)
    field = next((key for key in _QUESTIONS if isinstance(raw.get(key), str)), None)
    if field is None:
        raise DataError(
            f"{where}: expected verl's columns, or a question as text in problem, question or prompt and its answer in "
            f"answer, got {', '.join(raw)}; rename the columns."
        )
    options = _options(raw, where)
    gold_field = next((key for key in _GOLDS if raw.get(key) is not None), "answer")
    gold = raw.get(gold_field)
    if isinstance(gold, list) and len(gold) == 1:
        gold = gold[0]
    if not options and isinstance(gold, str) and (final := _FINAL_ANSWER.findall(gold)):
        gold = _THOUSANDS.sub("", final[-1])  # GSM8K: the solution, then `#### 1,234`
    is_list = isinstance(raw.get("choices"), list)
    is_counted = (
        gold_field in _COUNTS_FROM_0 or "ending0" in raw or "endings" in raw or (is_list and isinstance(gold, int))
    )
    if gold is None and isinstance(raw.get("solution"), str):  # MATH: the answer is in the solution's box
        gold, gold_field = joined_boxes(raw["solution"]), "solution"
    index, odd = raw.get("answer_index"), None
    if isinstance(index, int) and f"{gold}" in LETTERS and LETTERS[index : index + 1] != gold:  # MMLU-Pro has both
        odd = f"answer {gold} contradicts answer_index {index}; the answer counts"
    passages = [raw[key] for key in _PASSAGES if isinstance(raw.get(key), str) and key != field]
    question = check_text("\n\n".join([*passages, str(raw[field])]), f"{where}, {field}")
    if isinstance(gold, str):
        check_text(gold, f"{where}, {gold_field}")
    return PlainRow(number, identity, question, options, gold, gold_field, is_counted, odd)


def training_row(origin: str, number: int, raw: RawRow, declared_kind: DeclaredKind) -> DataRow:
    """Return a row in verl's schema or in a published layout as a `DataRow`.

    Raises:
        DataError: A field is missing or wrong, or a gold answer names its option by other than its label.
    """
    if is_of_verl(raw):
        return check_row(origin, number, raw, declared_kind)
    row = read_row(number, raw, origin)
    kind = declared_kind if declared_kind != "auto" else "choice" if row.options else "math"
    answer = row.label(GoldReading.LABEL) if row.options and kind == "choice" else gold_text(row.gold)
    if not answer:
        what = "the label of an option" if row.options else "a gold answer"
        raise DataError(f"{origin}, row {number}, {row.gold_field}: expected {what}, got {shown(row.gold)}.")
    if row.options and kind == "choice" and row.label(GoldReading.TEXT) not in {None, answer}:
        raise DataError(
            f"{origin}, row {number}, {row.gold_field}: {shown(row.gold)} is the label of one option and the text of "
            "another; write options whose texts are no labels."
        )
    messages = [{"role": "user", "content": row.text}]
    written = {"data_source": origin, "prompt": messages, "reward_model": {"ground_truth": answer}}
    return check_row(origin, number, written, kind, row.gold_field)


def decide_reading(rows: Iterable[PlainRow], origin: str, index_from: int | None) -> GoldReading:
    """Return how the gold answers of a file's rows with options name them.

    Raises:
        DataError: A gold answer names no option, or numbers may count from 0 or from 1 and `index_from` does not say.
    """
    asked = [row for row in rows if row.options]
    fits = {way: [row for row in asked if row.label(way) is not None] for way in GoldReading}
    best = max(GoldReading, key=lambda way: len(fits[way]))
    if len(fits[best]) < len(asked):
        odd = next(row for row in asked if row.label(best) is None)
        labels = f"{odd.options[0][0]} to {odd.options[-1][0]}"
        raise DataError(
            f"{origin}, row {odd.number}, {odd.gold_field}: expected {best.value}, of {labels}, as in other rows, got "
            f"{odd.gold!r:.60}."
        )
    ways = [way for way in GoldReading if len(fits[way]) == len(asked)]
    numbers = [way for way in ways if way in {GoldReading.FROM_0, GoldReading.FROM_1}]
    unlike = [row for row in asked if len({row.label(way) for way in (GoldReading.LABEL, GoldReading.TEXT)}) > 1]
    is_text_too = GoldReading.TEXT in ways and any(row.gold_field != "answerKey" for row in unlike)
    if ways[0] is GoldReading.LABEL and not is_text_too:
        return ways[0]
    if index_from is not None and numbers and GoldReading.LABEL not in ways:
        return GoldReading.FROM_1 if index_from else GoldReading.FROM_0
    if GoldReading.FROM_0 in numbers and all(row.counts_from_0 for row in asked):
        return GoldReading.FROM_0
    if len(ways) == 1:
        return ways[0]
    row = unlike[0] if is_text_too else asked[0]
    meanings = " or ".join(f"{row.label(way)} ({way.value})" for way in ways if row.label(way) is not None)
    remedy = "say `index_from: 0` or `index_from: 1` in the benchmark's entry, or write labels."
    if ways[0] is GoldReading.LABEL:
        remedy = "write the option's number, counted from 0, in answer_idx instead."
    raise DataError(
        f"{origin}, row {row.number}, {row.gold_field}: {row.gold!r:.60} may mean option {meanings}, as in all rows: "
        f"{remedy}"
    )


def gold_text(gold: object) -> str:
    """Return a gold answer as text; data sets that hold whole numbers as floats mean whole numbers."""
    if isinstance(gold, float) and gold.is_integer():
        return str(int(gold))
    is_number = isinstance(gold, int) or (isinstance(gold, float) and math.isfinite(gold))
    return str(gold).strip() if isinstance(gold, str) or (is_number and not isinstance(gold, bool)) else ""


def _options(raw: RawRow, where: str) -> tuple[tuple[str, str], ...]:
    field, value = _find_options(raw, where)
    if not value:
        return ()
    pairs = _pairs(value, f"{where}, {field}")
    if not 2 <= len(pairs) <= len(LETTERS):
        raise DataError(f"{where}, {field}: has {len(pairs)} options with labels, expected 2 to {len(LETTERS)}.")
    if any(part is None for pair in pairs for part in pair):
        raise DataError(f"{where}, {field}: expected a label and a text for each option, got null; write them.")
    labelled = [(str(label).strip(), _option_text(text, f"{where}, {field}")) for label, text in pairs]
    prefixes = [re.match(rf"\(?{re.escape(label)}[).:]\s*", text) for label, text in labelled]
    if all(prefixes):  # AQuA: "A)21"
        labelled = [
            (label, text[match.end() :]) for (label, text), match in zip(labelled, prefixes, strict=True) if match
        ]
    for pair in labelled:
        check_text("".join(pair), f"{where}, {field}")
    return tuple(labelled)


def _pairs(value: object, label: str) -> list[tuple[Any, Any]]:
    """Return the labels and texts of options in any of the published forms."""
    if isinstance(value, Mapping) and {"label", "text"} <= value.keys():
        labels, texts = value["label"] or (), value["text"] or ()
        return list(zip(labels, texts, strict=True)) if len(labels) == len(texts) else []
    if isinstance(value, Mapping):
        return [item for item in value.items() if item[1] is not None]
    if isinstance(value, Sequence) and all(isinstance(item, Mapping) and len(item) == 1 for item in value):
        return [pair for item in value for pair in item.items()]
    if isinstance(value, Sequence) and all(isinstance(item, Mapping) for item in value):
        return [(item.get("label", item.get("key")), item.get("text", item.get("value"))) for item in value]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return list(zip(LETTERS, value, strict=False)) if len(value) <= len(LETTERS) else [("", "")] * len(value)
    raise DataError(f"{label}: expected a list or an object of options, got {value!r:.60}.")


def _option_text(value: object, label: str) -> str:
    """Return the text of an option; a list of one text is this text."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, list | Mapping):
        raise DataError(f"{label}: expected a text for each option, got {shown(value)}; write texts.")
    return str(value).strip()


def _find_options(raw: RawRow, where: str) -> tuple[str, Any]:
    """Return the field of a row's options, the last if they have a column each, and what it holds, None without any.

    Columns are A to D, opa to opd, ending0 to ending3, Option 1: to Option 4: and the like. Empty ones at the end are
    no options.
    """
    field = next((key for key in raw if _holds_options(key, raw)), None)
    if field is not None:
        return field, raw[field]
    columns = _option_columns(raw, where)
    while columns and raw[columns[-1]] is None:
        columns.pop()
    if len(columns) < 2:
        _refuse_other_options(raw, where)
        return "options", None
    if empty := [key for key in columns if raw[key] is None]:
        raise DataError(f"{where}, {empty[0]}: expected a text, since {columns[-1]} has one; write it.")
    return columns[-1], [raw[key] for key in columns]


def _holds_options(key: str, raw: RawRow) -> bool:
    """Return whether a column has all options of its row, and neither their number nor answers that are accepted."""
    value = raw[key]
    if key == "answers":
        golds = [raw[name] for name in _GOLDS if raw.get(name) is not None]
        return isinstance(value, list) and bool(golds) and golds[0] not in value
    if key in _OPTION_LISTS:
        return value is not None
    return _OPTION_LIST.fullmatch(_plain_name(key)) is not None and isinstance(value, list | Mapping)


def _plain_name(key: str) -> str:
    """Return a column's name in small letters, with spaces for signs: `Option A:` is `option a`."""
    return re.sub(r"[\W_]+", " ", key.lower()).strip()


def _refuse_other_options(raw: RawRow, where: str) -> None:
    """Refuse a row whose gold answer is a label, and whose columns hold options under names of another kind."""
    gold = next((raw[name] for name in _GOLDS if raw.get(name) is not None), None)
    series: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for key in (key for key in raw if isinstance(raw[key], str)):
        words = _plain_name(re.sub(r"(?<=[a-z])(?=[A-Z\d])|(?<=选项)|(?=选项)", " ", key)).split()
        rest = tuple(word for word in words if not _PLACE.fullmatch(word))
        if len(rest) < len(words) and any(map(_LIKE_OPTION.fullmatch, rest)):
            series[rest].append(key)
    columns = next((columns for columns in series.values() if len(columns) > 1), [])
    if columns and re.fullmatch(r"\(?[A-J]\)?|\d", str(gold).strip()):
        raise DataError(
            f"{where}, {columns[0]}: looks like one option of several; rename the columns to A, B and so on."
        )


def _option_columns(raw: RawRow, where: str) -> list[str]:
    """Return the columns with an option each, in order: of one name, with letters from A or numbers from 0 or 1."""
    for (stem, is_number), found in _series(raw, where).items():
        first, columns = min(found), [found[place] for place in sorted(found)]
        if len(columns) < 2 or first > is_number:
            continue
        if stem in _ALSO_SOLUTIONS and not _names_one([raw[key] for key in columns], raw):
            continue
        if stem == "distractor":
            raise DataError(f"{where}, {columns[0]}: is an option; write all of them as a list in options.")
        for place, key in enumerate(columns, start=first):
            if place not in found:
                raise DataError(f"{where}, {key}: expected a column for each option before it; rename the columns.")
        return columns
    return []


def _series(raw: RawRow, where: str) -> dict[tuple[str, bool], dict[int, str]]:
    """Return the columns that may be options by their stem and whether they are numbered: each at its place."""
    series: dict[tuple[str, bool], dict[int, str]] = {}
    for key in raw:
        if match := _OPTION_COLUMN.fullmatch(_plain_name(key)):
            stem, end = match["stem"] or match["after"] or "", match["end"] or match["last"]
            # Else a number that the question names a, b or 1.
            if stem or isinstance(raw[key], str) or re.sub(r"\W", "", key) in LETTERS:
                place = int(end) if end.isdigit() else ascii_lowercase.index(end)
                other = series.setdefault((stem, end.isdigit()), {}).setdefault(place, key)
                if other != key:
                    raise DataError(f"{where}, {key}: is the same option as {other}; remove one of them.")
    return series


def _names_one(texts: Sequence[Any], raw: RawRow) -> bool:
    """Whether a row's gold answer can be one of these options: its text, its letter or its number."""
    gold = str(next((raw[name] for name in _GOLDS if raw.get(name) is not None), "")).strip()
    numbers = {str(place) for place in range(len(texts) + 1)}
    return gold in {str(text).strip() for text in texts} | numbers | {*LETTERS[: len(texts)]}


def _gpqa(number: int, identity: str | None, raw: RawRow, where: str) -> PlainRow:
    """Return a row of GPQA, whose options are in an order that is drawn by the question."""
    columns = ("Question", "Correct Answer", *(f"Incorrect Answer {index}" for index in (1, 2, 3)))
    if missing := [name for name in columns if raw.get(name) is None]:
        raise DataError(f"{where}, {missing[0]}: expected a text.")
    question, correct, *wrong = (check_text(str(raw[name]), f"{where}, {name}") for name in columns)
    correct = correct.strip()
    texts = [correct, *(text.strip() for text in wrong)]
    random.Random(question).shuffle(texts)
    label = LETTERS[texts.index(correct)]
    options = tuple(zip(LETTERS, texts, strict=False))
    return PlainRow(number, identity, question.strip(), options, label, "Correct Answer")
