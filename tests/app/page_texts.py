"""What a page tested in this process says, its fields of New run, and clicks into its tables."""

import json

from streamlit.proto.WidgetStates_pb2 import WidgetState, WidgetStates
from streamlit.testing.v1 import AppTest


def texts(page: AppTest) -> list[str]:
    """Return the texts, headings and captions of a page."""
    return [element.value for element in [*page.text, *page.markdown, *page.subheader, *page.caption]]


def has_text(page: AppTest, part: str) -> bool:
    """Return whether one of them contains `part`."""
    return any(part in text for text in texts(page))


def select(page: AppTest, table_id: str, **selection: list) -> None:
    """Select in a table what a browser sends for a click: `cells=[[0, "Run"]]` or `columns=["Run"]`."""
    sent = {"selection": {"rows": [], "columns": [], "cells": [], **selection}}
    page._run(WidgetStates(widgets=[WidgetState(id=table_id, string_value=json.dumps(sent))]))


KINDS = ("text_input", "number_input", "toggle", "selectbox", "multiselect", "text_area")


def field(page, path):
    """Return the widget of a field, such as `optim.learning_rate`, that the open section shows."""
    key = page.session_state["new-run-form"].key(path)
    return next(widget for kind in KINDS for widget in page.get(kind) if widget.key == key)
