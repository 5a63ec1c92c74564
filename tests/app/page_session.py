"""A browser's part of a page, without a browser: the web socket by which Streamlit runs a page's script."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from urllib.parse import urlencode

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.Element_pb2 import Element
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.WidgetStates_pb2 import WidgetState
from websockets.sync.client import ClientConnection, connect

from tests.app.web_server import ServedWorkbench

ANSWER_SECONDS = 300.0
ERROR_TITLES = ("This page failed", "Database unavailable")
"""What pages show of a fault; Streamlit's own box is for faults outside their scripts."""


class PageSession:
    """One open tab of a signed-in person."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self.widgets: dict[str, str] = {}
        """Streamlit's id of each widget of the page that was opened last, by its key."""
        self.texts: list[str] = []
        """What that page says."""

    def open(self, page: str, states: Iterable[WidgetState] = (), **query: str) -> list[str]:
        """Run a page's script to its end; return the faults that it shows, which are none where all is well.

        `states` are what widgets hold and which button was pressed.
        """
        asked = BackMsg()
        asked.rerun_script.page_name = page
        asked.rerun_script.query_string = urlencode(query)
        asked.rerun_script.widget_states.widgets.extend(states)
        self._connection.send(asked.SerializeToString())
        self.widgets, self.texts = {}, []
        errors = []
        while True:
            answer = ForwardMsg.FromString(self._connection.recv(timeout=ANSWER_SECONDS))
            element = answer.delta.new_element
            self._record(element)
            if element.WhichOneof("type") == "exception":
                errors.append(f"{element.exception.type}: {element.exception.message}")
            errors += [f"{page}: {title}" for title in ERROR_TITLES if title in element.markdown.body]
            if answer.WhichOneof("type") == "script_finished":
                return errors

    def _record(self, element: Element) -> None:
        self.texts += filter(None, [element.markdown.body, element.text.body, element.alert.body])
        if kind := element.WhichOneof("type"):
            widget_id = getattr(getattr(element, kind), "id", "")
            if widget_id.startswith("$$ID-"):
                self.widgets[widget_id.split("-", 2)[2]] = widget_id


def states(
    widgets: Mapping[str, str], fields: Mapping[str, str | Sequence[str]], pressed: str | None = None
) -> list[WidgetState]:
    """Return the states of widgets whose `fields` were filled in, and of a button that was `pressed`, by their keys."""
    filled = [
        WidgetState(id=widgets[key], string_value=value)
        if isinstance(value, str)
        else WidgetState(id=widgets[key], string_array_value={"data": value})
        for key, value in fields.items()
    ]
    return filled + ([WidgetState(id=widgets[pressed], trigger_value=True)] if pressed else [])


@contextmanager
def page_session(workbench: ServedWorkbench) -> Iterator[PageSession]:
    """Sign in, as the printed link does, and open a tab."""
    with open_tab(workbench.origin, workbench.cookie()) as session:
        yield session


@contextmanager
def open_tab(origin: str, cookies: str, *protocols: str) -> Iterator[PageSession]:
    """Open a tab of the person whose cookies these are; `protocols` carry Streamlit's token against forgery."""
    with connect(
        f"{origin.replace('http', 'ws', 1)}/_stcore/stream", origin=origin, subprotocols=["streamlit", *protocols],
        additional_headers={"Cookie": cookies}, proxy=None, max_size=None,
    ) as connection:  # fmt: skip
        yield PageSession(connection)
