"""The parts of the method as the paper's Figure 2 has them, each with a link to what shows it of a run."""

from dataclasses import dataclass

import streamlit as st

_BUFFER, _TRAJECTORIES = (("view", "Buffer"),), (("view", "Trajectories"),)
_STEP = (("view", "Step"),)
PHASES = "(a) Experience management", "(b) Policy optimization"


@dataclass(frozen=True, slots=True)
class Box:
    """One part of the method, and the parameters of the run's page that shows it."""

    phase: str
    title: str
    text: str
    query: tuple[tuple[str, str], ...] = ()


BOXES = (
    Box(PHASES[0], "Questions D", "fresh ones, none retired", _TRAJECTORIES),
    Box(PHASES[0], "Replay buffer E", "successes by question", (*_BUFFER, ("part", "Over time"))),
    Box(PHASES[0], "Buckets by Acc", "latest correctness k/K", _BUFFER),
    Box(PHASES[0], "Medium first", "p ∝ N(Acc; 0.5, 1)", _STEP),
    Box(PHASES[0], "Lowest entropy o*", "under the policy now", _STEP),
    Box(PHASES[0], "K or K-1 rollouts", "verified rewards", _TRAJECTORIES),
    Box(PHASES[0], "Keep successes", "1 to K-1 correct", (*_TRAJECTORIES, ("outcome", "correct"))),
    Box(PHASES[0], "Retired set S", "solved K of K", (*_BUFFER, ("part", "Flow"))),
    Box(PHASES[1], "Mixed mini-batch", "fresh and replayed groups"),
    Box(PHASES[1], "Objective", "w·Â fresh, f(w*)·Â replayed"),
    Box(PHASES[1], "Policy π", "writes the next rollouts"),
)


def show(run_id: str | None) -> None:
    """Show both phases side by side; links open this run's page, where there is a run."""
    for column, phase in zip(st.columns(2), PHASES, strict=True):
        with column.container(border=True, height="stretch", gap="xsmall"):
            st.markdown(f"**{phase}**")
            for box in BOXES:
                if box.phase == phase:
                    query = dict(box.query) | ({"run": run_id} if run_id else {})
                    st.page_link("app_pages/run.py", label=f"**{box.title}**: {box.text}", query_params=query)
