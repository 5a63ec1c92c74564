"""Both models' recorded answers to one question side by side, as they are."""

import streamlit as st

from app import address, requests
from app.components.widgets import notice
from app.formats import escape_control_characters, share
from app.requests import RecordedQuestion
from db.rows.scores import ItemRow

PARAMETER = "item"
"""The parameter of the address that names the question."""


def wanted() -> str | None:
    """Return the question that the address names."""
    return st.query_params.get(PARAMETER)


def show(item: ItemRow, run_ids: tuple[str, str], names: tuple[str, str]) -> None:
    """Show the question and what each model answered, one sample at a time, with its outcome by every scheme."""
    recorded = [requests.evaluation_answers(run_id, item.benchmark, item.question_id) for run_id in run_ids]
    with st.container(border=True, key="answers"):
        with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
            st.text(escape_control_characters(f"Question {item.question_id}"))
            st.button("Close", icon=":material/close:", key="close-item", on_click=_close, type="tertiary")
        _show_question(next((question for question in recorded if question is not None and question.text), None))
        sides = zip(st.columns(2, gap="medium"), run_ids, names, (item.first, item.second), recorded, strict=True)
        for column, run_id, name, rate, question in sides:
            with column:
                with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
                    st.text(escape_control_characters(f"{name}: {share(rate)} correct"))
                    st.page_link("app_pages/run.py", label="Evaluation", query_params={"run": run_id})
                damage = requests.answer_damage(run_id, item.benchmark)
                if damage:
                    notice.show("warning", "Recorded answers are damaged", "\n".join(damage))
                _answers(question, f"{run_id}-{item.question_id}")


def _show_question(question: RecordedQuestion | None) -> None:
    if question is not None:
        st.code(escape_control_characters(question.text), language=None, wrap_lines=True)
        st.text(escape_control_characters(f"Gold answer: {question.gold}"))


def _answers(question: RecordedQuestion | None, key: str) -> None:
    if question is None:
        st.markdown(":gray[The answers are not in the evaluation's folder.]")
        return
    number = 1
    if len(question.answers) > 1:
        number = st.number_input("Sample", 1, len(question.answers), key=f"sample-{key}", width=140)
    answer = question.answers[int(number) - 1]
    outcomes = ", ".join(f"{scheme} {outcome}" for scheme, outcome in answer.outcomes.items())
    st.caption(f"{outcomes} · {answer.num_tokens:,} tokens" + (", cut at the limit" if answer.is_truncated else ""))
    st.code(escape_control_characters(answer.text), language=None, wrap_lines=True)


def _close() -> None:
    address.put({PARAMETER: None})
