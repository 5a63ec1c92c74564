"""Refreshes of fragments as Streamlit 1.67 should run them: nothing unsent goes lost, and no new page is emptied."""

from streamlit.runtime.forward_msg_queue import ForwardMsgQueue
from streamlit.runtime.scriptrunner import ScriptRunner
from streamlit.runtime.scriptrunner_utils.script_requests import RerunData


def keep_what_fragments_follow() -> None:
    """Let a fragment's refresh leave what the queue of messages to a browser still holds of earlier runs.

    Streamlit takes out what the same fragment drew before, since the refresh draws it again. Where that was part of a
    run of the whole page that a busy server has not sent yet, the browser takes the page as finished without it,
    removes the fragment's old place, and puts all that follows into wrong places: empty tabs, or a white page.
    """
    clear = ForwardMsgQueue.clear

    def clear_unless_a_fragment_begins(
        queue: ForwardMsgQueue, retain_lifecycle_msgs: bool = False, fragment_ids_this_run: list[str] | None = None
    ) -> None:
        if fragment_ids_this_run:
            queue._delta_index_map = {}  # what comes is sent after what is there, not in its place
        else:
            clear(queue, retain_lifecycle_msgs, fragment_ids_this_run)

    ForwardMsgQueue.clear = clear_unless_a_fragment_begins  # type: ignore[method-assign]


def leave_out_those_of_other_pages() -> None:
    """Let a session ignore a refresh that a browser asked for on the page that the session has left since.

    A fragment that all pages have is asked for every few seconds, also while a change of pages is under way. Streamlit
    runs it after that, as part of the page before, for which the browser throws the new page away.
    """
    run_script = ScriptRunner._run_script

    def run_unless_of_another_page(runner: ScriptRunner, asked: RerunData) -> None:
        if not asked.fragment_id_queue or asked.page_script_hash == runner._pages_manager.current_page_script_hash:
            run_script(runner, asked)

    ScriptRunner._run_script = run_unless_of_another_page  # type: ignore[method-assign]
