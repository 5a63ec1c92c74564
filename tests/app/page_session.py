"""A browser's part of a page, without a browser: the web socket by which Streamlit runs a page's script."""

import time
from contextlib import contextmanager
from urllib.parse import urlencode

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.sync.client import connect

ANSWER_SECONDS = 300.0
ERROR_TITLES = ("This page failed", "Database unavailable")
"""What pages show of a fault; Streamlit's own box is for faults outside their scripts."""


class PageSession:
    """One open tab of a signed-in person."""

    def __init__(self, connection):
        self._connection = connection
        self._asked = BackMsg()
        self._refreshes: dict[str, float] = {}
        """Seconds between the refreshes of each fragment of that page, by its id."""

    def open(self, page, **query):
        """Run a page's script to its end; return the faults that it shows, which are none where all is well."""
        asked = BackMsg()
        asked.rerun_script.page_name = page
        asked.rerun_script.query_string = urlencode(query)
        self._refreshes = {}
        self._asked = asked
        return self._send(asked)

    def stay(self, seconds):
        """Refresh what the open page refreshes, as often as a browser does; return the faults that this shows."""
        now = time.monotonic()
        end, due = now + seconds, {fragment: now + every for fragment, every in self._refreshes.items()}
        errors = []
        while due and (at := min(due.values())) < end:
            time.sleep(max(0.0, at - time.monotonic()))
            fragment = min(due, key=due.__getitem__)
            due[fragment] = max(at + self._refreshes[fragment], time.monotonic())
            asked = BackMsg()
            asked.CopyFrom(self._asked)
            asked.rerun_script.fragment_id, asked.rerun_script.is_auto_rerun = fragment, True
            errors += self._send(asked)
        time.sleep(max(0.0, end - time.monotonic()))
        return errors

    def _send(self, asked):
        self._connection.send(asked.SerializeToString())
        page, errors = asked.rerun_script.page_name, []
        while True:
            answer = ForwardMsg.FromString(self._connection.recv(timeout=ANSWER_SECONDS))
            element = answer.delta.new_element
            if answer.WhichOneof("type") == "navigation":
                self._asked.rerun_script.page_script_hash = answer.navigation.page_script_hash
            if answer.WhichOneof("type") == "auto_rerun":
                self._refreshes[answer.auto_rerun.fragment_id] = answer.auto_rerun.interval
            if element.WhichOneof("type") == "exception":
                errors.append(f"{element.exception.type}: {element.exception.message}")
            errors += [f"{page}: {title}" for title in ERROR_TITLES if title in element.markdown.body]
            if answer.WhichOneof("type") == "script_finished":
                return errors


@contextmanager
def page_session(workbench):
    origin = workbench.origin
    with connect(
        f"{origin.replace('http', 'ws', 1)}/_stcore/stream", origin=origin, subprotocols=["streamlit"],
        additional_headers={"Cookie": workbench.cookie()}, proxy=None, max_size=None,
        open_timeout=ANSWER_SECONDS, ping_timeout=None,
    ) as connection:  # fmt: skip
        yield PageSession(connection)
