"""Which columns the list of runs has: those of every run, and any field of their specifications."""

from collections.abc import Mapping, Sequence

import streamlit as st

from app import requests
from app.components.widgets.spec_text import flatten, option_text
from app.formats import escape_control_characters
from app.queries.answers import ask
from db.queries.run_fields import list_specs
from db.rows.display_names import BATCH_PASS_RATE, held_out_score
from db.rows.runs import RunRow

DEFAULT = (
    "State", "Run", "Method", "Progress", "Time left", BATCH_PASS_RATE, "Curve", held_out_score(), "Health", "Reason",
    "Created", "Tags", "Started", "Model", "Engine",
)  # fmt: skip
FURTHER = ("Id", "Preset", "Data", "Step")
ADDRESS = "columns"
_SEPARATOR = ","
_KEY = "run-columns"


def fields() -> list[str]:
    """Return the paths of all fields that a training run's specification has by default."""
    return [path for path in flatten(requests.TrainSpec().model_dump(mode="json")) if path not in {"name", "kind"}]


def of_address() -> list[str]:
    """Return the columns that the address asks for, else the usual ones; the run's name is always one."""
    wanted = st.query_params.get(ADDRESS)
    if wanted is None:
        return list(DEFAULT)
    known = {*DEFAULT, *FURTHER, *fields()}
    chosen = [name for name in wanted.split(_SEPARATOR) if name in known]
    return chosen if "Run" in chosen else ["Run", *chosen]


def choose(chosen: Sequence[str]) -> None:
    """Show the menu of columns; the choice is written into the address."""
    with st.popover("Columns", icon=":material/view_column:", key="columns-menu"):
        st.session_state[_KEY] = list(chosen)
        st.multiselect(
            "Columns", [*DEFAULT, *FURTHER, *fields()], key=_KEY, on_change=_take, select_all=False,
            help="Columns in the order chosen; names with a dot are fields of the specification",
        )  # fmt: skip
        st.button("Usual columns", key="columns-usual", on_click=_reset, type="tertiary")


def values(rows: Sequence[RunRow], paths: Sequence[str]) -> dict[str, list[str | None]]:
    """Return the values of fields in each run, as `--set` writes them; None where a run has no such field."""
    if not paths:
        return {}
    specs = {run_id: flatten(spec) for run_id, spec in ask(list_specs, tuple(row.run_id for row in rows)).items()}
    return {path: [_text(specs.get(row.run_id, {}), path) for row in rows] for path in paths}


def _text(spec: Mapping[str, object], path: str) -> str | None:
    return escape_control_characters(option_text(spec[path])) if path in spec else None


def _take() -> None:
    chosen = st.session_state[_KEY]
    # Not `address.put`: the list is a fragment, and what it remembers could undo a step back.
    if chosen and tuple(chosen) != DEFAULT:
        st.query_params[ADDRESS] = _SEPARATOR.join(chosen)
    else:
        _reset()


def _reset() -> None:
    st.query_params.pop(ADDRESS, None)
