"""Methods, Replay methods: a card for each, with its paper, what it changes, and the form of a run with it."""

import streamlit as st

from exgrpo.app import settings
from exgrpo.app.components.new_run import form_state, starting_point
from exgrpo.app.components.widgets.spec_text import option_text
from exgrpo.jobs.actions.replay.side_by_side import PRESET_OF_METHODS
from exgrpo.jobs.actions.studies.definition import load_study
from exgrpo_core.methods.about import About
from exgrpo_core.methods.loading import CORRECTION, QUESTIONS, describe, methods


def parameters(about: About) -> dict[str, str | list[str]]:
    """Return the address of New run with a method chosen; what is as in the preset the form leaves out."""
    changes = [f"algorithm.{name}={option_text(value)}" for name, value in about.settings.items()]
    return {starting_point.PRESET: PRESET_OF_METHODS, form_state.ADDRESS: changes}


def _card(name: str, about: About) -> None:
    with st.container(border=True, gap="xsmall", key=f"entry-{name}", height="stretch"):
        paper = f"[{about.paper}]({about.address})" if about.address else about.paper
        st.markdown(f"**{about.title}** :gray[{paper}]")
        st.caption(describe(QUESTIONS, name) or describe(CORRECTION, name))
        changes = {"Questions": about.questions, "Trajectories": about.trajectories, "Correction": about.correction}
        st.markdown("  \n".join(f":gray[{part}] {words}" for part, words in changes.items()))
        if not settings.current().is_view:
            st.page_link(
                "app_pages/new_run.py", label="Run it", icon=":material/play_arrow:", query_params=parameters(about)
            )


def show() -> None:
    """Show a card for each replay method, the paper's first."""
    st.markdown(
        "What each method changes: which **questions** are replayed, which of their **trajectories**, and how replayed "
        f"tokens count (**correction**). The study *{load_study('methods').title}* runs all of them."
    )
    with st.container(key="tiles-replay-methods"):
        for name, about in methods().items():
            _card(name, about)
