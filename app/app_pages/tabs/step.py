"""Run, Step: a recorded step executed again, with the run's settings and with others, and the groups of the step."""

from collections.abc import Sequence

import streamlit as st

from exgrpo.app import settings
from exgrpo.app.components.replay_buffer import step_groups, step_verdicts
from exgrpo.app.components.widgets import address_choice, notice
from exgrpo.app.formats import literal
from exgrpo.app.queries.answers import ask
from exgrpo.db.queries import buffer, selections
from exgrpo.db.rows.runs import RunRow
from exgrpo.jobs.actions.replay.facts import Fact
from exgrpo.jobs.specs.presets import preset_names
from exgrpo_core.methods.loading import methods

_SETTING, _METHOD = "setting", "method"


def show(row: RunRow) -> None:
    """Show a step of the run, or why it has none."""
    if not row.has_settings:
        text = "The settings of this run cannot be read, so its steps cannot be executed again."
        notice.show_empty("fact_check", "Not executed", text)
        return
    steps = ask(selections.steps_with_trajectories, row.run_id)
    if not steps:
        text = "A step is here when its responses are recorded."
        notice.show_empty("fact_check", "No step with responses yet", text)
        return
    st.caption(
        "A recorded step, computed again from its files and compared with the record. A click on a curve under "
        "**Curves** leads to its step."
    )
    step, changes, method = _choose(row, steps)
    facts: Sequence[Fact] = ()
    then: Sequence[Fact] = ()
    with notice.refusals("Not executed"):
        with st.spinner("Executing the step again", show_time=False):
            facts = step_verdicts.facts_of(row, step)
        step_verdicts.show(row, step, facts)
    if changes or method:
        words = [*changes, *([f"the method {_methods().get(method, method)}"] if method else [])]
        st.markdown(f"**With {literal(' and '.join(words))}**")
        with notice.refusals("Not executed with this setting"):
            then = step_verdicts.facts_of(row, step, changes, method)
            step_verdicts.show(row, step, then, changes, method)
    groups = step_groups.groups_of(row.run_id, step, facts, then)
    buckets = {bucket.bucket: bucket for bucket in ask(buffer.buckets_at, row.run_id, step)}
    step_groups.show(row.run_id, step, groups, buckets)
    if len(steps) > 1 and not settings.current().is_view:
        step_verdicts.show_all(row, steps)


def _choose(row: RunRow, steps: list[int]) -> tuple[int, list[str], str | None]:
    """Show the choice of the step and of other settings, and return them."""
    left, right = st.columns([3, 1], gap="medium", vertical_alignment="bottom")
    with left:
        wanted = steps[-1]
        if len(steps) > 1:
            wanted = address_choice.select_step("Step", steps[0], steps[-1], steps[-1], "step")
    step = min(steps, key=lambda number: (abs(number - wanted), -number))
    if step != wanted:
        st.caption(f"No responses of step {wanted:,} are recorded: showing step {step:,}.")
    if row.is_recorded:
        return step, [], None
    with right, st.popover("Other settings", icon=":material/tune:", key="step-settings", width="stretch"):
        text: str = st.text_input(
            "With another setting", placeholder="algorithm.experience_ratio=.25",
            help="Several are separated by spaces. Symbols as mu, sigma and rho are known, too.",
            **address_choice.bound(_SETTING, st.query_params.get(_SETTING, ""), _SETTING),
        )  # fmt: skip
        method = address_choice.select("With another method", {"": "of the run"} | _methods(), _METHOD, "")
    return step, text.split(), method or None


def _methods() -> dict[str, str]:
    """Return what the list of methods calls each replay method and preset."""
    return {name: about.title for name, about in methods().items()} | {
        name: f"preset {name}" for name in preset_names()
    }
