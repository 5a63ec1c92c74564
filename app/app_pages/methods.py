"""The paper's figures and tables next to one's own runs, replay methods, and tables as studies that are run here."""

from collections.abc import Callable

import streamlit as st

from exgrpo.app import settings
from exgrpo.app.app_pages.tabs import paper, replay_methods, studies
from exgrpo.app.components.widgets import address_choice
from exgrpo.app.page_list import TABS

VIEWS: dict[str, Callable[[], None]] = dict(
    zip(TABS["methods"], (paper.show, replay_methods.show, studies.show), strict=True)
)
STARTS_RUNS = frozenset({"Studies"})
"""Tabs that exist to start runs."""

with st.container(horizontal=True, vertical_alignment="center"):
    st.title("Methods", anchor=False, width="content")
name, tab = address_choice.tabs([name for name in VIEWS if name not in STARTS_RUNS or not settings.current().is_view])
with tab:
    VIEWS[name]()
