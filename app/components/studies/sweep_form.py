"""The form of a new sweep: a base and the values of its fields, as YAML."""

import streamlit as st

from app import address, requests
from app.components.widgets import notice
from app.requests import UserError

_EXAMPLE = """\
base: chains-exgrpo
over:
  optim.learning_rate: [1e-4, 2e-4]
  seed: [0, 1, 2]
"""
_REFUSAL = "sweep-refusal"


def show() -> None:
    """Show the menu with the form; a sweep that is right is opened, to be launched there."""
    with st.popover("New sweep", icon=":material/grid_on:", key="new-sweep"):
        name = st.text_input("Name", "sweep", key="sweep-name", max_chars=31)
        text = st.text_area(
            "Base and values", _EXAMPLE, key="sweep-text", height=180,
            help="`base` is a preset or the fields of a specification; all combinations of `over` are run. "
            "`exgrpo sweep FILE` takes the same.",
        )  # fmt: skip
        st.button("Check and open", type="primary", key="sweep-keep", on_click=_keep, args=(name, text))
        if (refusal := st.session_state.pop(_REFUSAL, None)) is not None:
            notice.show("error", "Not a sweep yet", refusal)


def _keep(name: str, text: str) -> None:
    try:
        kept = requests.keep_sweep(name.strip(), text)
    except UserError as error:
        st.session_state[_REFUSAL] = str(error)
        return
    address.put({"study": kept, "cells": None})
