"""Repairs of Streamlit's faults; late refreshes of a page that was left are in `tests/browser/test_pages.py`."""

import pytest
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.runtime.forward_msg_queue import ForwardMsgQueue
from streamlit.runtime.scriptrunner import ScriptRunContext, ScriptRunner

from exgrpo.app.serving import streamlit_changes

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
