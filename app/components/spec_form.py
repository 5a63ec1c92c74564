"""The form of a new run, built from the specification's own fields."""

from collections.abc import Mapping

import streamlit as st

from app.components import field_input
from app.components.field_shapes import FieldShape, sections
from app.components.spec_text import flatten

TITLES = {
    "run": "Run",
    "model": "Model",
    "data": "Data",
    "algorithm": "Algorithm",
    "optim": "Optimizer",
    "validation": "Validation",
    "recording": "Recording",
}
SUBHEADINGS = {
    "algorithm.batch_size": "Batch and rollouts",
    "algorithm.experience_ratio": "Experience management",
    "algorithm.normalize_by_std": "Policy optimization",
}
"""Headings inside the algorithm's section, each before the field where it stands."""


def show(start: Mapping[str, object], origin: str) -> dict[str, object]:
    """Show every field, `start` as first values, and return what the form holds, nested as a specification.

    A different `origin` (a preset or a run) is a fresh form.
    """
    values = flatten(start)
    content: dict[str, object] = {"kind": start["kind"], "preset": start.get("preset")}
    found = sections()
    tabs = st.tabs([TITLES.get(name, name.capitalize()) for name in found], key="section", bind="query-params")
    for tab, (name, shapes) in zip(tabs, found.items(), strict=True):
        with tab:
            held = {_leaf(shape): _field(shape, values, origin) for shape in shapes}
        if name == "run":
            content |= held
        else:
            content[name] = held
    return content


def _field(shape: FieldShape, values: Mapping[str, object], origin: str) -> object:
    if shape.path in SUBHEADINGS:
        st.subheader(SUBHEADINGS[shape.path], anchor=False)
    return field_input.show(shape, values.get(shape.path), f"{origin}-{shape.path}".replace(".", "-"))


def _leaf(shape: FieldShape) -> str:
    return shape.path.rpartition(".")[2]
