"""Reports of `exgrpo contamination`: whether a model has seen the questions that it is scored on."""

import pandas as pd
import streamlit as st

from app import commands
from app.commands import ContaminationReport
from app.components.widgets import notice
from app.formats import escape_control_characters


def show() -> None:
    """Show the reports as a table, newest first, or how to make one."""
    reports, faults = commands.contamination_reports()
    if faults:
        notice.show("warning", "Reports are damaged", "\n".join(faults))
    if not reports:
        st.caption("Has a model seen the questions? Compare it with training data and other numbers:")
        st.code("exgrpo contamination RUN@last -b math500 --data TRAINING_DATA", language="shell")
        return
    st.dataframe(table(reports), hide_index=True, alt="Probes of contamination by model and benchmark")


def table(reports: list[ContaminationReport]) -> pd.DataFrame:
    """Return one row a report, with the sentences on what was detected."""
    return pd.DataFrame([_row(report) for report in reports])


def _row(report: ContaminationReport) -> dict[str, object]:
    probe = report.probe
    return {
        "Model": escape_control_characters(report.model),
        "Benchmark": escape_control_characters(report.benchmark),
        "Signs": escape_control_characters(" ".join(report.signs())) or "none",
        "In training data": None if report.training_data is None else report.num_overlapping / report.num_questions,
        "Completed": f"{probe.num_completed:,} of {probe.num_compared:,}",
        "With other numbers": f"{probe.num_completed_changed:,} of {probe.num_compared:,}",
        "Likeliest": f"{probe.num_likeliest:,} of {probe.num_compared:,}",
        "Made": report.made_at,
    }
