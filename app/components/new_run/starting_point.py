"""What the form of a new run starts from: a preset, an earlier run or a checkpoint of it, or a draft."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import streamlit as st

from exgrpo.app import address
from exgrpo.app.components.new_run import form_state
from exgrpo.app.components.new_run.form_state import value_at
from exgrpo.app.components.widgets import address_choice, notice
from exgrpo.app.formats import literal, with_code
from exgrpo.app.queries.answers import ask
from exgrpo.app.settings import runs_root
from exgrpo.db.queries import runs
from exgrpo.jobs.actions import branching, drafts, run_actions
from exgrpo.jobs.runs.directory import CommandError
from exgrpo.jobs.specs.train import load_preset, preset_description, preset_exists, preset_group, preset_names
from exgrpo_core.errors import Mistake, UserError

DEFAULT_PRESET = "chains-exgrpo"
PRESET, GROUP_KEY = "preset", "preset-group"
FROM, STEP = "from", "step"


@dataclass(frozen=True, slots=True)
class StartingPoint:
    """The initial values of a form, and a key that names them."""

    values: Mapping[str, Any]
    key: str
    parent: str | None = None
    """Id of the run that is copied or branched."""
    step: int | None = None
    """Step of the checkpoint that a branch continues from; None of all else."""
    failure: Sequence[Mistake] = field(default=())
    """Why the parent failed, if it did, with the fields to change."""

    @property
    def branched(self) -> tuple[str, int] | None:
        """The run and step that a branch continues from."""
        return None if self.parent is None or self.step is None else (self.parent, self.step)

    @property
    def command(self) -> str:
        """The command that starts the parent's copy or branch unchanged, nothing without a parent."""
        if self.parent is None:
            return ""
        if self.step is None:
            return f"exgrpo clone {self.parent} --submit"
        return f"exgrpo branch {self.parent} --step {self.step}"

    def unmended(self, content: Mapping[str, Any]) -> list[Mistake]:
        """Return why the parent failed, as far as the fields to change are as they were."""
        return [
            mistake
            for mistake in self.failure
            if mistake.fields and all(value_at(content, name) == value_at(self.values, name) for name in mistake.fields)
        ]

    def unfilled(self, mistakes: Sequence[Mistake]) -> list[Mistake]:
        """Return the mistakes of fields that are empty at first: a preset leaves to the user what only users know."""
        return [mistake for mistake in mistakes if any(value_at(self.values, name) == "" for name in mistake.fields)]


def choose() -> StartingPoint:
    """Show the choice of a preset, or of the checkpoint of a branch, and return what the form starts from."""
    for name, read in ((FROM, _read_parent), (form_state.DRAFT_ADDRESS, _read_draft)):
        source = st.query_params.get(name)
        if source:
            try:
                return read(source)
            except UserError as error:
                title = "Cannot clone that run" if name == FROM else "Cannot open that draft"
                notice.show("error", title, str(error))
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        chosen = _choose_preset()
    st.caption(with_code(preset_description(chosen)))
    return StartingPoint(load_preset(chosen).model_dump(mode="json"), f"preset-{chosen}")


def _read_draft(source: str) -> StartingPoint:
    start = StartingPoint(drafts.load_draft(runs_root(), source), f"{form_state.DRAFT_ADDRESS}-{source}")
    _say("a draft")
    return start


def _read_parent(run_id: str) -> StartingPoint:
    if address.whole_number(STEP) is None:
        start = StartingPoint(
            run_actions.spec_of_copy(runs_root(), run_id).model_dump(mode="json"), f"{FROM}-{run_id}", run_id,
            failure=run_actions.find_failure(runs_root(), run_id),
        )  # fmt: skip
        _say("an earlier run")
        for mistake in start.failure:
            notice.show("error", "The run failed", mistake)
        return start
    run = ask(runs.get_run, run_id)
    steps = {str(row.step): f"{row.step:,}" for row in reversed(ask(runs.list_checkpoints, run_id))}
    if run is None or not steps:
        raise CommandError(f"{run_id} has no checkpoint to branch from yet.")
    chosen = int(
        address_choice.select(f"Branch of {literal(run.name)}, from step", steps, STEP, next(iter(steps)), (), 520)
    )
    st.caption("It has the weights, buffer and draws of that step; both runs share their files until then.")
    spec = branching.branch_spec(runs_root(), run_id, chosen)
    return StartingPoint(spec.model_dump(mode="json"), f"branch-{run_id}-{chosen}", run_id, chosen)


def _say(source: str) -> None:
    st.caption(f"Starts from the values of {source}. **New run** in the menu starts from a preset.")


def _choose_preset() -> str:
    """Show groups of presets and those of the group in which the chosen one is; return that one."""
    groups: dict[str, dict[str, str]] = {}
    for name, engine in _engines().items():
        groups.setdefault(preset_group(name), {})[name] = f"{name} · {engine}"
    wanted = st.query_params.get(PRESET)
    group = preset_group(wanted if preset_exists(wanted) else DEFAULT_PRESET)
    st.session_state[GROUP_KEY] = group
    st.segmented_control(
        "Presets for", list(groups), format_func=str.capitalize, required=True, key=GROUP_KEY, on_change=_open_group,
    )  # fmt: skip
    return address_choice.select(
        "Preset", groups[group], PRESET, next(iter(groups[group])), [form_state.ADDRESS], 420,
        "Where the form starts; every field can be changed",
    )  # fmt: skip


def _open_group() -> None:
    group = st.session_state[GROUP_KEY]
    first = next(name for name in preset_names() if preset_group(name) == group)
    address.put({PRESET: first, form_state.ADDRESS: None})


@st.cache_data(show_spinner=False)
def _engines() -> dict[str, str]:
    return {name: load_preset(name).engine for name in preset_names()}
