"""A browser's part of a page, without a browser: the web socket by which Streamlit runs a page's script."""

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlencode

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.sync.client import ClientConnection, connect

from tests.app.web_server import ServedWorkbench

ANSWER_SECONDS = 300.0
ERROR_TITLES = ("This page failed", "Database unavailable")
"""What pages show of a fault; Streamlit's own box is for faults outside their scripts."""


class PageSession:
    """One open tab of a signed-in person."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    def open(self, page: str, **query: str) -> list[str]:
        """Run a page's script to its end; return the faults that it shows, which are none where all is well."""
        asked = BackMsg()
        asked.rerun_script.page_name = page
        asked.rerun_script.query_string = urlencode(query)
        self._connection.send(asked.SerializeToString())
        errors = []
        while True:
            answer = ForwardMsg.FromString(self._connection.recv(timeout=ANSWER_SECONDS))
            element = answer.delta.new_element
            if element.WhichOneof("type") == "exception":
                errors.append(f"{element.exception.type}: {element.exception.message}")
            errors += [f"{page}: {title}" for title in ERROR_TITLES if title in element.markdown.body]
            if answer.WhichOneof("type") == "script_finished":
                return errors


@contextmanager
def page_session(workbench: ServedWorkbench) -> Iterator[PageSession]:
    """Sign in, as the printed link does, and open a tab."""
    headers = {"Cookie": workbench.cookie()}
    address = f"ws://{workbench.netloc}/_stcore/stream"
    with connect(
        address, origin=workbench.origin, subprotocols=["streamlit"], additional_headers=headers, proxy=None,
        max_size=None,
    ) as connection:  # fmt: skip
        yield PageSession(connection)
