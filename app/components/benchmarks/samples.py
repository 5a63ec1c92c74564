"""What models answered on a benchmark, question by question: grades, gold answers, two models side by side."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
import streamlit as st

from exgrpo.app import address
from exgrpo.app.components.benchmarks.score_table import column_of, line_name, scored_names
from exgrpo.app.components.widgets import address_choice, data_table, grid, notice, shown_text
from exgrpo.app.formats import counted, escape_control_characters, share
from exgrpo.app.queries.benchmarks import list_scores
from exgrpo.app.settings import runs_root
from exgrpo.db.rows.display_names import distinct_names
from exgrpo.jobs.evaluation.analysis import score_curves as evaluated
from exgrpo.jobs.evaluation.recorded_answers import AnsweredQuestion, QuestionSummary

ITEM = "item"
_BESIDE, _ON, _SHOWN, _SCHEME = "beside", "on", "shown", "scheme"
_NOBODY = "none"
SCHEMES = {
    "paper": "By the published rules of the grader that the paper used",
    "training": "As rewarded in training, by Math-Verify",
}


@dataclass(frozen=True, slots=True)
class Side:
    """One model's answers to a question: the evaluation, its name, and the share that is correct."""

    run_id: str
    name: str
    rate: float


@dataclass(frozen=True, slots=True)
class _Row:
    question: QuestionSummary
    first: float
    second: float | None
    num_samples: int
    """Of both sides, as in what follows."""
    mean_tokens: float
    num_truncated: int


_Rule = Callable[[_Row], bool]
_OF_ONE: Mapping[str, _Rule] = {
    "All": lambda _: True,
    "Correct": lambda row: row.first == 1,
    "Sometimes correct": lambda row: 0 < row.first < 1,
    "Wrong": lambda row: row.first == 0,
    "Truncated": lambda row: row.num_truncated > 0,
}
_OF_TWO: Mapping[str, _Rule] = {
    "A correct, B wrong": lambda row: row.second is not None and row.first > row.second,
    "A wrong, B correct": lambda row: row.second is not None and row.first < row.second,
    "Both correct": lambda row: row.first == 1 == row.second,
    "Both wrong": lambda row: row.first == 0 == row.second,
    "Truncated": lambda row: row.num_truncated > 0,
    "All": lambda _: True,
}


def show(run_id: str, name: str, benchmarks: Sequence[str]) -> None:
    """Show the questions of an evaluation with its grades, alone or next to another evaluation of the benchmark."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        titles = {benchmark: column_of(benchmark) for benchmark in benchmarks}
        benchmark = address_choice.select("Benchmark", titles, _ON, benchmarks[0], [ITEM, _BESIDE], 200)
        others = {_NOBODY: "No other", **_others(run_id, benchmark)}
        other = address_choice.select("Compare with (B)", others, _BESIDE, _NOBODY, [ITEM, _SHOWN], 340)
        scheme = st.segmented_control(
            "Graded", list(SCHEMES), default="paper", required=True, key=_SCHEME, bind="query-params",
            help=" \n\n".join(f"**{key}**: {text}" for key, text in SCHEMES.items()),
        )  # fmt: skip
    second = None if other == _NOBODY else other
    rows = _rows(run_id, second, benchmark, scheme)
    if not rows:
        notice.show_empty("quiz", "No answers yet", "A question appears here when all of its answers are graded.")
        return
    listed = _filtered(rows, _OF_ONE if second is None else _OF_TWO)
    names = {run_id: name} if second is None else {run_id: f"A: {name}", second: f"B: {others[second]}"}
    _list(listed, names, f"{run_id}-{other}-{benchmark}-{scheme}")
    wanted = st.query_params.get(ITEM)
    opened = next((number for number, row in enumerate(listed) if row.question.question_id == wanted), None)
    if opened is not None:
        row = listed[opened]
        rates = [row.first, *([] if row.second is None else [row.second])]
        sides = [Side(key, label, rate) for (key, label), rate in zip(names.items(), rates, strict=True)]
        neighbours = [listed[place].question.question_id if 0 <= place < len(listed) else None
                      for place in (opened - 1, opened + 1)]  # fmt: skip
        show_answers(row.question.question_id, benchmark, sides, (neighbours[0], neighbours[1]))


def _others(run_id: str, benchmark: str) -> dict[str, str]:
    """Return the other evaluations that answered the benchmark, newest first, by what they scored."""
    scores = list_scores("paper")
    names = scored_names(scores)
    rows = [row for row in scores if row.benchmark == benchmark and row.run_id != run_id]
    return distinct_names((row.run_id, line_name(row, names)) for row in rows)


def _rows(run_id: str, second: str | None, benchmark: str, scheme: str) -> list[_Row]:
    first = evaluated.evaluation_questions(runs_root(), run_id, benchmark)
    if second is None:
        return [_row([item], scheme) for item in first]
    of_second = {item.question_id: item for item in evaluated.evaluation_questions(runs_root(), second, benchmark)}
    rows = [_row([item, of_second[item.question_id]], scheme) for item in first if item.question_id in of_second]
    return sorted(rows, key=lambda row: (row.second or 0.0) - row.first)


def _row(sides: Sequence[QuestionSummary], scheme: str) -> _Row:
    num_samples = sum(item.num_samples for item in sides)
    num_tokens = sum(item.mean_tokens * item.num_samples for item in sides)
    rates = [item.num_correct[scheme] / item.num_samples for item in sides]
    return _Row(
        sides[0], rates[0], rates[1] if len(rates) > 1 else None, num_samples, num_tokens / num_samples,
        sum(item.num_truncated for item in sides),
    )  # fmt: skip


def _filtered(rows: Sequence[_Row], rules: Mapping[str, _Rule]) -> list[_Row]:
    """Show the filters with how many questions each keeps; return what the chosen one does."""
    found = {name: [row for row in rows if rule(row)] for name, rule in rules.items()}
    first = next(iter(rules))
    offered = [name for name in rules if found[name] or name in {first, "All"}]
    wanted = st.query_params.get(_SHOWN)
    chosen = wanted if wanted in offered else first
    st.segmented_control(
        "Questions", offered, format_func=lambda name: f"{name} ({len(found[name]):,})", required=True,
        help="Of several answers to a question, correct: all, wrong: none. Compared with another model, correct: more "
        "often than the other", **address_choice.bound(_SHOWN, chosen, "samples-shown", [ITEM]),
    )  # fmt: skip
    return found[chosen]


def _list(rows: Sequence[_Row], names: Mapping[str, str], key: str) -> None:
    columns = ["Correct"] if len(names) == 1 else ["A correct", "B correct"]
    frame = pd.DataFrame(
        {
            "Question": [escape_control_characters(row.question.text) for row in rows],
            "Gold answer": [escape_control_characters(row.question.gold) for row in rows],
            columns[0]: [100 * row.first for row in rows],
            **({columns[1]: [100 * (row.second or 0.0) for row in rows]} if len(names) > 1 else {}),
            "Samples": [row.num_samples for row in rows],
            "Tokens": [row.mean_tokens for row in rows],
            "Truncated": [row.num_truncated for row in rows],
        }
    )
    data_table.show_caption(f"{counted(len(rows), 'question')}; click one for its answers", frame, "samples")
    number = st.column_config.NumberColumn
    opened, ids = st.query_params.get(ITEM), [row.question.question_id for row in rows]
    percent = number(format="%.0f%%", help="Share of its samples that are correct")
    grid.draw(
        frame, f"samples-{key}", "Questions of the benchmark with their grades",
        {"Tokens": number(format="%.0f", help="Mean of the answers"), **dict.fromkeys(columns, percent)},
        5 if opened in ids else 10, grid.Clicks(ids, _open, opened),
    )  # fmt: skip


def show_answers(
    question_id: str, benchmark: str, sides: Sequence[Side], neighbours: tuple[str | None, str | None] = (None, None)
) -> None:
    """Show a question, its gold answer and what each model answered, one sample at a time, graded by every scheme."""
    recorded = [evaluated.evaluation_answers(runs_root(), side.run_id, benchmark, question_id) for side in sides]
    with st.container(border=True, key="answers"):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.text(escape_control_characters(f"Question {question_id}"), width="stretch")
            for label, icon, other in zip(
                ("Previous", "Next"), ("arrow_back", "arrow_forward"), neighbours, strict=True
            ):
                if neighbours != (None, None):
                    st.button(
                        label, icon=f":material/{icon}:", key=f"{label.lower()}-item", on_click=_open, args=(other,),
                        type="tertiary", disabled=other is None,
                    )  # fmt: skip
            st.button("Close", icon=":material/close:", key="close-item", on_click=_open, args=(None,), type="tertiary")
        asked = next((question for question in recorded if question is not None and question.question), None)
        if asked is not None:
            shown_text.show_raw(asked.question)
            st.text(escape_control_characters(f"Gold answer: {asked.gold}"))
        for column, side, question in zip(st.columns(len(sides), gap="medium"), sides, recorded, strict=True):
            with column:
                _side(side, question, benchmark, question_id)


def _side(side: Side, question: AnsweredQuestion | None, benchmark: str, question_id: str) -> None:
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.text(escape_control_characters(f"{side.name}: {share(side.rate)} correct"))
        st.page_link("app_pages/run.py", label="Evaluation", query_params={"run": side.run_id})
    damage = evaluated.answer_damage(runs_root(), side.run_id, benchmark)
    if damage:
        notice.show("warning", "Recorded answers are damaged", "\n".join(damage))
    if question is None:
        st.markdown(":gray[The answers are not in the evaluation's folder.]")
        return
    number = 1
    if len(question.samples) > 1:
        key = f"sample-{side.run_id}-{question_id}"
        number = st.number_input("Sample", 1, len(question.samples), key=key, width=140)
    answer, outcome = question.samples[int(number) - 1], question.outcomes[int(number) - 1]
    grades = ", ".join(f"{scheme} {grade}" for scheme, grade in outcome._asdict().items())
    cut = ", truncated" if answer.is_truncated else ""
    st.caption(f"{grades} · {counted(answer.num_tokens, 'token')}{cut}")
    shown_text.show_raw(answer.text)


def _open(question_id: str | None) -> None:
    address.put({ITEM: question_id})
