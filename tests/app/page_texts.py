"""What a page tested in this process says, its fields of New run, and clicks into its tables."""

import json
from dataclasses import dataclass

import pandas as pd
from streamlit.proto.BidiComponent_pb2 import BidiComponent
from streamlit.proto.WidgetStates_pb2 import WidgetState, WidgetStates


def texts(page):
    return [element.value for element in [*page.text, *page.markdown, *page.subheader, *page.caption]]


def has_text(page, part):
    return any(part in text for text in texts(page))


@dataclass(frozen=True)
class Table:
    """What a browser draws as a table."""

    proto: BidiComponent

    @property
    def data(self):
        return json.loads(self.proto.json or self.proto.mixed.json)

    @property
    def value(self):
        return pd.DataFrame(self.data["rows"], columns=[column["name"] for column in self.data["columns"]])

    def send(self, page, event, value):
        """Run the page as for a click, `event` being opened, sorted or more, or for ticks, ticked."""
        if event == "ticked":
            sent = WidgetState(id=self.proto.id, json_value=json.dumps({event: value}))
        else:
            trigger = f"$$STREAMLIT_INTERNAL_KEY_{self.proto.id}__events"
            sent = WidgetState(id=trigger, json_trigger_value=json.dumps({"event": event, "value": value}))
        page._run(WidgetStates(widgets=[sent]))

    def open(self, page, row, column=None):
        self.send(page, "opened", {"id": self.data["ids"][row], "column": column or self.data["columns"][0]["name"]})


def tables(page):
    return [
        Table(element.proto) for element in page.get("bidi_component") if element.proto.component_name == "exgrpo_table"
    ]


KINDS = ("text_input", "number_input", "toggle", "selectbox", "multiselect", "text_area")


def field(page, path):
    key = page.session_state["new-run-form"].key(path)
    return next(widget for kind in KINDS for widget in page.get(kind) if widget.key == key)
