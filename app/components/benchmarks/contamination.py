"""Reports of `exgrpo eval --contamination`: whether a model has seen the questions that it is scored on."""

import pandas as pd
import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from app import requests
from app.components.widgets import notice
from app.formats import NONE_SHOWN, escape_control_characters
from app.requests import ContaminationReport


def show() -> None:
    """Show the reports as a table, newest first, or how to make one."""
    reports, faults = requests.contamination_reports()
    if faults:
        notice.show("warning", "Reports are damaged", "\n".join(faults))
    if not reports:
        st.caption("Has a model seen the questions? Compare it with training data and other numbers:")
        st.code("exgrpo eval RUN@last -b math500 --contamination --data TRAINING_DATA", language="shell")
        return
    st.dataframe(
        table(reports), hide_index=True, placeholder=NONE_SHOWN, column_config=_columns(),
        alt="Probes of contamination by model and benchmark",
    )  # fmt: skip


def table(reports: list[ContaminationReport]) -> pd.DataFrame:
    """Return one row a report, with the sentences on what was detected."""
    return pd.DataFrame([_row(report) for report in reports])


def _columns() -> dict[str, ColumnConfig]:
    config = st.column_config
    return {
        "Signs": config.TextColumn(
            help="What suggests that the model was trained on the questions, each with p <= 0.01"
        ),
        "In training data": config.NumberColumn(
            format="percent",
            help="Share of the questions that have half of their 13-word sequences in the training data",
        ),
        "Completed": config.TextColumn(
            help="Questions whose second half the model writes word for word, given the first; only those with numbers"
        ),
        "With other numbers": config.TextColumn(
            help="The same with other numbers put into each question: what the model knows of the wording alone"
        ),
        "Likeliest": config.TextColumn(
            help="Questions that are likelier to the model than each of 9 versions with other numbers; by luck 1 in 10"
        ),
        "Made": config.DatetimeColumn(format="YYYY-MM-DD HH:mm", help="When the report was made, in UTC"),
    }


def _row(report: ContaminationReport) -> dict[str, object]:
    probe = report.probe
    return {
        "Model": escape_control_characters(report.model),
        "Benchmark": escape_control_characters(report.benchmark),
        "Signs": escape_control_characters(" ".join(report.signs()))
        or ("none" if report.was_tested else "nothing to compare"),
        "In training data": None if report.training_data is None else report.num_overlapping / report.num_questions,
        "Completed": f"{probe.num_completed:,} of {probe.num_compared:,}",
        "With other numbers": f"{probe.num_completed_changed:,} of {probe.num_compared:,}",
        "Likeliest": f"{probe.num_likeliest:,} of {probe.num_compared:,}",
        "Made": pd.to_datetime(report.made_at, errors="coerce"),
    }
