"""Repairs of Streamlit's faults."""

from unittest.mock import MagicMock

import pytest
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.runtime import Runtime
from streamlit.runtime.forward_msg_queue import ForwardMsgQueue
from streamlit.runtime.fragment import MemoryFragmentStorage
from streamlit.runtime.pages_manager import PagesManager
from streamlit.runtime.scriptrunner import ScriptRunContext, ScriptRunner
from streamlit.runtime.scriptrunner_utils.script_requests import RerunData, ScriptRequests
from streamlit.runtime.state import SafeSessionState, SessionState
from streamlit.testing.v1.local_script_runner import LocalScriptRunner

from app.serving import streamlit_changes

pytestmark = pytest.mark.slow

FRAGMENT = "a-fragment"


@pytest.fixture
def queue(monkeypatch):
    monkeypatch.setattr(ForwardMsgQueue, "clear", ForwardMsgQueue.clear)
    streamlit_changes.keep_unsent_messages()
    return ForwardMsgQueue()


def block(path, fragment=""):
    message = ForwardMsg()
    message.metadata.delta_path.extend(path)
    message.delta.fragment_id = fragment
    message.delta.add_block.allow_empty = True
    return message


def text(path, words, fragment=""):
    message = ForwardMsg()
    message.metadata.delta_path.extend(path)
    message.delta.fragment_id = fragment
    message.delta.new_element.text.body = words
    return message


def finished():
    return ForwardMsg(script_finished=ForwardMsg.FINISHED_SUCCESSFULLY)


def test_a_refresh_takes_nothing_out_of_a_whole_page_that_was_not_sent_yet(queue):
    page = [block([0, 0], FRAGMENT), text([0, 0, 0], "then", FRAGMENT), block([0, 1]), finished()]
    refresh = [block([0, 0], FRAGMENT), text([0, 0, 0], "now", FRAGMENT)]
    for message in page:
        queue.enqueue(message)
    queue.clear(retain_lifecycle_msgs=True, fragment_ids_this_run=[FRAGMENT])
    for message in refresh:
        queue.enqueue(message)
    assert queue.flush() == page + refresh


def test_a_run_of_the_whole_page_still_takes_the_place_of_what_was_not_sent(queue):
    for message in (block([0, 0]), finished()):
        queue.enqueue(message)
    queue.clear(retain_lifecycle_msgs=True)
    assert [message.WhichOneof("type") for message in queue.flush()] == ["script_finished"]
    assert queue.is_empty()


SCRIPT = """
import streamlit as st

@st.fragment
def on_all_pages():
    st.text("banner")

def before():
    st.text("before")

def shown():
    st.text("shown")

page = st.navigation([st.Page(before, default=True), st.Page(shown)], position="hidden")
on_all_pages()
page.run()
"""


class Session:
    """A session of Streamlit on the script above, asked as browsers ask; `hashes` are those of its pages by name."""

    def __init__(self, path):
        path.write_text(SCRIPT, encoding="utf-8")
        self._path = str(path)
        self._pages = PagesManager(self._path)
        self._fragments = MemoryFragmentStorage()
        self._state = SafeSessionState(SessionState(), lambda: None)
        self.ask()
        self.hashes = {entry["url_pathname"]: page for page, entry in self._pages.get_pages().items()}

    def ask(self, **request):
        """Return the pages as which the request was run, and its fragments; nothing where it was ignored."""
        runner = LocalScriptRunner(self._path, self._state, self._pages, fragment_storage=self._fragments)
        runner._requests = ScriptRequests()  # it holds one for the whole page, into which ours would be merged
        runner.request_rerun(RerunData(**request))
        runner.start()
        runner.join()
        return [
            (data["page_script_hash"], data["fragment_ids_this_run"])
            for data in runner.event_data
            if "fragment_ids_this_run" in data
        ]

    def refresh(self, page):
        return self.ask(page_script_hash=self.hashes[page], fragment_id_queue=list(self._fragments._fragments))


@pytest.fixture
def session(tmp_path, monkeypatch):
    monkeypatch.setattr(Runtime, "_instance", MagicMock())  # all but the web server is Streamlit's
    monkeypatch.setattr(ScriptRunner, "_run_script", ScriptRunner._run_script)
    monkeypatch.setattr(ScriptRunContext, "set_mpa_v2_page", ScriptRunContext.set_mpa_v2_page)
    return Session(tmp_path / "main.py")


def test_a_fragment_of_a_page_that_the_session_has_left_is_not_run(session):
    streamlit_changes.ignore_refreshes_of_other_pages()
    session.ask(page_script_hash=session.hashes["shown"])
    assert session.refresh("") == []
    ((page, _),) = session.refresh("shown")
    assert page == session.hashes["shown"]


def test_a_change_that_a_new_streamlit_has_no_place_for_is_left_out_with_a_line_in_the_log(monkeypatch, caplog):
    def clear(self, is_new):
        pass

    monkeypatch.setattr(ForwardMsgQueue, "clear", clear)
    monkeypatch.delattr(ScriptRunContext, "set_mpa_v2_page")
    run_script = ScriptRunner._run_script
    streamlit_changes.repair()
    assert ForwardMsgQueue.clear is clear
    assert ScriptRunner._run_script is run_script
    assert [record.args[1] for record in caplog.records] == ["keep_unsent_messages", "ignore_refreshes_of_other_pages"]
