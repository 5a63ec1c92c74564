"""The paper's figures and tables next to one's own runs, and its tables as studies that are run here."""

from collections.abc import Callable

import streamlit as st

from app import settings
from app.app_pages.tabs import paper, studies
from app.components.widgets import address_choice

VIEWS: dict[str, Callable[[], None]] = {"Paper": paper.show, "Studies": studies.show}
NOT_IN_VIEWS = frozenset({"Studies"})
"""Tabs that exist to start runs."""

with st.container(horizontal=True, vertical_alignment="center"):
    st.title("Methods", anchor=False, width="content")
name, tab = address_choice.tabs([name for name in VIEWS if name not in NOT_IN_VIEWS or not settings.current().is_view])
with tab:
    VIEWS[name]()
