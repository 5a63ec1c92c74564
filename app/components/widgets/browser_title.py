"""The title of the browser's tab: what the page shows first, since tabs are narrow."""

import streamlit as st

from app.formats import escape_control_characters

WORKBENCH = "ExGRPO Workbench"


def show(page: str, run_name: str | None = None) -> None:
    """Name the tab after the page, or after the run that it shows."""
    parts = [escape_control_characters(run_name)] if run_name else []
    st.set_page_config(page_title=" · ".join([*parts, page, WORKBENCH]))
