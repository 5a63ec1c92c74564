"""Both models' recorded answers to one question side by side, as they are."""

import streamlit as st

from app import commands
from app.formats import inert, share
from db.score_rows import ItemRow

PARAMETER = "item"
"""What the question is called in the address."""


def wanted() -> str | None:
    """Return the question that the address names."""
    return st.query_params.get(PARAMETER)


def show(item: ItemRow, run_ids: tuple[str, str], names: tuple[str, str]) -> None:
    """Show what each model answered, one sample at a time, with its outcome by every scheme."""
    with st.container(border=True, key="answers"):
        with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
            st.text(inert(f"Question {item.question_id}"))
            st.button("Close", icon=":material/close:", key="close-item", on_click=_close, type="tertiary")
        sides = zip(st.columns(2, gap="medium"), run_ids, names, (item.first, item.second), strict=True)
        for place, (column, run_id, name, rate) in enumerate(sides):
            with column:
                st.text(inert(f"{name}: {share(rate)} right"))
                _answers(run_id, item, place)


def _answers(run_id: str, item: ItemRow, place: int) -> None:
    answers = commands.evaluation_answers(run_id, item.benchmark, item.question_id)
    if not answers:
        st.markdown(":gray[The answers are not in the evaluation's folder.]")
        return
    number = 1
    if len(answers) > 1:
        number = st.number_input("Sample", 1, len(answers), key=f"sample-{place}-{item.question_id}", width=140)
    answer = answers[int(number) - 1]
    outcomes = ", ".join(f"{scheme} {outcome}" for scheme, outcome in answer.outcomes.items())
    st.caption(f"{outcomes} · {answer.num_tokens:,} tokens" + (", cut at the limit" if answer.is_truncated else ""))
    st.code(inert(answer.text), language=None, wrap_lines=True)


def _close() -> None:
    st.query_params.pop(PARAMETER, None)
