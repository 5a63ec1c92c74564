"""Refreshes of fragments as Streamlit 1.67 should run them: nothing unsent is lost, and no new page is emptied."""

from weakref import WeakKeyDictionary

from streamlit.runtime.forward_msg_queue import ForwardMsgQueue
from streamlit.runtime.pages_manager import PagesManager
from streamlit.runtime.scriptrunner import ScriptRunContext, ScriptRunner
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

    ForwardMsgQueue.clear = clear_unless_a_fragment_begins  # type: ignore[assignment, method-assign]


def leave_out_those_of_other_pages() -> None:
    """Let a session ignore a refresh, or a click in a fragment, that a browser sent from a page the session has left.

    A fragment that all pages have is asked for every few seconds, also while a change of pages is under way. Streamlit
    runs it after that, as part of the page before, for which the browser throws the new page away. Which page a session
    shows is what `st.navigation` came to last: a run that is stopped gets no further than to name the one it was for.
    """
    last_pages: WeakKeyDictionary[PagesManager, str] = WeakKeyDictionary()
    run_script, set_page = ScriptRunner._run_script, ScriptRunContext.set_mpa_v2_page

    def set_and_remember(context: ScriptRunContext, page: str) -> None:
        set_page(context, page)
        last_pages[context.pages_manager] = page

    def run_unless_of_another_page(runner: ScriptRunner, asked: RerunData) -> None:
        is_of_fragments = bool(asked.fragment_id_queue)
        last_page = last_pages.get(runner._pages_manager, asked.page_script_hash)
        if not is_of_fragments or asked.page_script_hash == last_page:
            run_script(runner, asked)

    ScriptRunContext.set_mpa_v2_page = set_and_remember  # type: ignore[assignment, method-assign]
    ScriptRunner._run_script = run_unless_of_another_page  # type: ignore[assignment, method-assign]
