"""The form of a new run, built from the fields of the specification."""

from collections.abc import Mapping
from typing import Any

import streamlit as st

from app.components.new_run import field_input
from app.components.new_run.field_shapes import HIDDEN, FieldShape, sections
from app.components.widgets.spec_text import flatten

TITLES = {
    "run": "Run",
    "model": "Model",
    "data": "Data",
    "algorithm": "Algorithm",
    "optim": "Optimizer",
    "validation": "Validation",
    "recording": "Recording",
    "verl": "verl engine",
}
SUBHEADINGS = {
    "algorithm.batch_size": "Batch and rollouts",
    "algorithm.experience_ratio": "Experience management",
    "algorithm.normalize_by_std": "Policy optimization",
    "verl.ray.address": "Ray",
}
"""Headings inside a section, by the field below each."""


def show(start: Mapping[str, object], origin: str) -> dict[str, object]:
    """Show every field, `start` as first values, and return what the form holds, nested as a specification.

    A different `origin` (a preset or a run) is a fresh form.
    """
    values = flatten(start)
    content: dict[str, object] = {}
    for path in HIDDEN:
        _set_value(content, path, values.get(path))
    fields = sections()
    tabs = st.tabs([TITLES.get(name, name.capitalize()) for name in fields], key="section", bind="query-params")
    for tab, shapes in zip(tabs, fields.values(), strict=True):
        with tab:
            for shape in shapes:
                _set_value(content, shape.path, _field(shape, values, origin))
    return content


def _field(shape: FieldShape, values: Mapping[str, object], origin: str) -> object:
    if shape.path in SUBHEADINGS:
        st.subheader(SUBHEADINGS[shape.path], anchor=False)
    return field_input.show(shape, values.get(shape.path), f"{origin}-{shape.path}".replace(".", "-"))


def _set_value(content: dict[str, Any], path: str, value: object) -> None:
    *parents, name = path.split(".")
    for parent in parents:
        content = content.setdefault(parent, {})
    content[name] = value
