"""The paper's figures and tables next to one's own runs, replay methods, and tables as studies that are run here."""

from collections.abc import Callable

import streamlit as st

from exgrpo.app import settings
from exgrpo.app.app_pages.tabs import paper, studies
from exgrpo.app.components.new_run import form_state, starting_point
from exgrpo.app.components.widgets import address_choice
from exgrpo.app.components.widgets.spec_text import option_text
from exgrpo.app.page_list import TABS
from exgrpo.jobs.actions.replay.side_by_side import PRESET_OF_METHODS
from exgrpo.jobs.actions.studies.definition import load_study
from exgrpo_core.methods.about import About
from exgrpo_core.methods.loading import CORRECTION, QUESTIONS, describe, methods


def _parameters(about: About) -> dict[str, str | list[str]]:
    """Return the address of New run with a method chosen; what is as in the preset the form leaves out."""
    changes = [f"algorithm.{name}={option_text(value)}" for name, value in about.settings.items()]
    return {starting_point.PRESET: PRESET_OF_METHODS, form_state.ADDRESS: [*changes, f"name=chains {about.title}"]}


def _card(name: str, about: About) -> None:
    with st.container(border=True, gap="xsmall", key=f"entry-{name}", height="stretch"):
        paper = f"[{about.paper}]({about.address})" if about.address else about.paper
        st.markdown(f"**{about.title}** :gray[{paper}]")
        st.caption(describe(QUESTIONS, name) or describe(CORRECTION, name))
        changes = {"Questions": about.questions, "Trajectories": about.trajectories, "Correction": about.correction}
        st.markdown("  \n".join(f":gray[{part}] {words}" for part, words in changes.items()))
        if not settings.current().is_view:
            st.page_link(
                "app_pages/new_run.py", label="Run it", icon=":material/play_arrow:", query_params=_parameters(about)
            )


def _replay_methods() -> None:
    """Show a card for each replay method, the paper's first."""
    st.markdown(
        "What each method changes: which **questions** are replayed, which of their **trajectories**, and how replayed "
        f"tokens count (**correction**). The study *{load_study('methods').title}* runs all of them."
    )
    with st.container(key="tiles-replay-methods"):
        for name, about in methods().items():
            _card(name, about)


VIEWS: dict[str, Callable[[], None]] = dict(
    zip(TABS["methods"], (paper.show, _replay_methods, studies.show), strict=True)
)
STARTS_RUNS = frozenset({"Studies"})

with st.container(horizontal=True, vertical_alignment="center"):
    st.title("Methods", anchor=False, width="content")
name, tab = address_choice.tabs([name for name in VIEWS if name not in STARTS_RUNS or not settings.current().is_view])
with tab:
    VIEWS[name]()
