"""What the form of a new run holds: values of the session, changes in the address, and drafts."""

import copy
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from exgrpo.app.components.new_run import field_input
from exgrpo.app.components.new_run.field_shapes import fields
from exgrpo.app.components.widgets import notice
from exgrpo.app.components.widgets.spec_text import option_text
from exgrpo.app.formats import literal
from exgrpo.app.settings import runs_root
from exgrpo.db.rows.spec_differences import differences
from exgrpo.jobs.actions import drafts
from exgrpo.jobs.specs.train import SpecError

ADDRESS = "set"
"""Changed fields in the address, each as `path=value`: JSON, or text that is not JSON."""
_MAX_CHARACTERS = 10_000
"""A longer value of the address is left out."""
_KEY, _EDITIONS = "new-run-form", "new-run-editions"
TABS_KEY = "new-run-sections"
"""Key of a widget that is always on the page: without it in the session, the page was opened again."""


@dataclass
class FormState:
    """The form's values, nested as a specification, next to those that it started from."""

    origin: str
    start: dict[str, Any]
    content: dict[str, Any]
    editions: Counter[str]
    """How often each field's widget was exchanged for one with another value."""

    @property
    def is_changed(self) -> bool:
        """Whether anything differs from what the form started from."""
        return self.content != self.start

    def value(self, path: str) -> object:
        """Return the value of a field, None where a part above it is missing."""
        return value_at(self.content, path)

    def put(self, path: str, value: object) -> None:
        """Set a field; where a part above it is missing nothing changes."""
        *parents, name = path.split(".")
        section: Any = self.content
        for parent in parents:
            section = section.get(parent) if isinstance(section, dict) else None
        if isinstance(section, dict):
            section[name] = value

    def key(self, path: str) -> str:
        """Return the key of a field's widget."""
        return f"{self.origin}-{path}-{self.editions[path]}".replace(".", "-")

    def take_widgets(self) -> None:
        """Set the fields that are on the page to what users put in."""
        for shape in fields().values():
            key = self.key(shape.path)
            if key in st.session_state:
                before = self.value(shape.path)
                self.put(shape.path, field_input.value_of(shape, st.session_state[key], before))

    def exchange(self, path: str, value: object) -> None:
        """Set a field from outside its widget; another widget shows the value."""
        self.put(path, value)
        self.editions[path] += 1

    def replace(self, content: Mapping[str, Any]) -> None:
        """Take other values, such as those of an edited text; other widgets show them."""
        self.content = copy.deepcopy(dict(content))
        self.editions.update(fields().keys())


def open_form(start: Mapping[str, Any], origin: str) -> FormState:
    """Return the form's state with what users changed since the last run of the page.

    Another `origin` (a preset, a run or a draft), a reload and a step in the browser's history take the changes of the
    address.
    """
    state = st.session_state.get(_KEY)
    context = get_script_run_ctx()
    is_history = context is not None and context.is_history_navigation
    if not isinstance(state, FormState) or state.origin != origin or TABS_KEY not in st.session_state or is_history:
        editions = st.session_state.setdefault(_EDITIONS, Counter())
        state = FormState(origin, copy.deepcopy(dict(start)), {}, editions)
        state.replace(start)
        for word in st.query_params.get_all(ADDRESS):
            path, separator, text = word.partition("=")
            if separator and len(text) <= _MAX_CHARACTERS:
                state.put(path, _read_value(text))
        st.session_state[_KEY] = state
    state.take_widgets()
    return state


def keep_in_address(state: FormState) -> None:
    """Write the changed fields into the address."""
    words = [f"{change.path}={option_text(change.after)}" for change in differences(state.start, state.content)]
    if words != st.query_params.get_all(ADDRESS):
        st.query_params[ADDRESS] = words


def forget() -> None:
    """Drop every change."""
    state = st.session_state.pop(_KEY, None)
    if isinstance(state, FormState):
        state.replace(state.start)
    st.query_params.pop(ADDRESS, None)


def value_at(content: object, path: str) -> object:
    """Return the value at a dotted path, None where a part of it is missing."""
    for name in path.split("."):
        content = content.get(name) if isinstance(content, Mapping) else None
    return content


def _read_value(text: str) -> object:
    """Return a value of the address; never read as YAML, whose aliases make a short text huge."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return text


def _refuse(constant: str) -> None:
    raise ValueError(constant)


DRAFT_ADDRESS = "draft"
_SAVE_ERROR = "draft-error"


def show_save_draft(state: FormState) -> None:
    """Show the button that keeps the form under the run's name."""
    st.button(
        "Save as draft", icon=":material/save:", width="stretch", key="save-draft", on_click=_save_draft,
        args=(state,),
    )  # fmt: skip
    error = st.session_state.pop(_SAVE_ERROR, None)
    if error:
        notice.show("error", "Not saved", error)


def _save_draft(state: FormState) -> None:
    state.take_widgets()  # what was typed right before the click
    name = str(state.content.get("name", ""))
    try:
        drafts.save_draft(runs_root(), name, state.content)
    except SpecError as error:
        st.session_state[_SAVE_ERROR] = str(error)
    else:
        st.toast(f"Saved as {literal(name)}", icon=":material/check:")


def show_drafts() -> str | None:
    """Show a menu of the saved drafts; return the one to open."""
    names = drafts.list_drafts(runs_root())
    chosen = None
    with st.popover(f"Drafts ({len(names)})" if names else "Drafts", icon=":material/draft:", key="drafts"):
        if not names:
            st.caption("None yet: **Save as draft** keeps a form under the run's name.")
        for name in names:
            with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
                if st.button(literal(name), key=f"open-draft-{name}", type="tertiary", icon=":material/edit:"):
                    chosen = name
                if st.button("Delete", key=f"delete-draft-{name}", type="tertiary", icon=":material/delete:"):
                    with notice.refusals("Not deleted"):
                        drafts.delete_draft(runs_root(), name)
                        st.rerun()
    return chosen
