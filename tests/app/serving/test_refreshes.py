from types import SimpleNamespace

import pytest
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.runtime.forward_msg_queue import ForwardMsgQueue
from streamlit.runtime.pages_manager import PagesManager
from streamlit.runtime.scriptrunner import ScriptRunContext, ScriptRunner
from streamlit.runtime.scriptrunner_utils.script_requests import RerunData

from app.serving import refreshes

FRAGMENT = "a-fragment"


@pytest.fixture
def queue(monkeypatch):
    monkeypatch.setattr(ForwardMsgQueue, "clear", ForwardMsgQueue.clear)
    refreshes.keep_unsent_messages()
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


@pytest.fixture
def served(monkeypatch):
    """What is run of what a browser asks for."""
    served = []
    monkeypatch.setattr(ScriptRunner, "_run_script", lambda _runner, asked: served.append(asked))
    monkeypatch.setattr(ScriptRunContext, "set_mpa_v2_page", lambda _context, _page: None)
    refreshes.ignore_refreshes_of_other_pages()
    return served


def test_what_the_page_before_asks_for_late_is_left_out(served):
    pages, pages_of_another = PagesManager("main.py"), PagesManager("main.py")
    late = RerunData(page_script_hash="before", fragment_id_queue=[FRAGMENT])
    timely = RerunData(page_script_hash="shown", fragment_id_queue=[FRAGMENT])
    whole = RerunData(page_script_hash="next")

    def ask(asked, pages=pages):
        ScriptRunner._run_script(SimpleNamespace(_pages_manager=pages), asked)

    ask(late)
    ScriptRunContext.set_mpa_v2_page(SimpleNamespace(pages_manager=pages), "before")
    ask(late)
    ScriptRunContext.set_mpa_v2_page(SimpleNamespace(pages_manager=pages), "shown")
    ask(late)
    pages.set_current_page_script_hash("before")
    ask(late)
    assert served == [late, late]
    ask(timely)
    ask(whole)
    ask(late, pages_of_another)
    assert served[2:] == [timely, whole, late]
