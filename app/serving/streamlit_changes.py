"""What Streamlit 1.67 should do: refresh fragments without loss of an unsent message, and empty no new page.

Neither fault has an issue at Streamlit.
"""

import inspect
import logging
import secrets
from collections.abc import Callable
from weakref import WeakKeyDictionary

import streamlit
from streamlit import config
from streamlit.web import bootstrap

_LOG = logging.getLogger(__name__)


def load_options(options: dict[str, object]) -> None:
    """Set Streamlit's options, all others to their defaults.

    Streamlit would read `config.toml` of the user's home and of the current folder, which are of other applications.
    """
    config.get_config_files = lambda file_name: []  # noqa: ARG005 - Streamlit names it
    bootstrap.load_config_options(options | {"server.cookieSecret": secrets.token_hex(32)})


def repair() -> None:
    """Make both changes; one that does not fit this Streamlit is left out, with a line in the log."""
    for change in (keep_unsent_messages, ignore_refreshes_of_other_pages):
        try:
            change()
        except (ImportError, AttributeError) as error:
            _LOG.warning("Streamlit %s does without %s: %s", streamlit.__version__, change.__name__, error)


def _expect(function: Callable[..., object], *parameters: str) -> None:
    found = tuple(inspect.signature(function).parameters)
    if found != ("self", *parameters):
        raise AttributeError(f"{function.__qualname__} takes {found}")


def keep_unsent_messages() -> None:
    """Make a fragment's refresh keep the messages of earlier runs that are still queued for the browser.

    Streamlit removes what the same fragment drew before, since the refresh draws it again. If that was part of a run of
    the whole page that a busy server has not sent yet, the browser takes the page as finished without it, removes the
    fragment's old element, and puts everything after it at wrong positions: empty tabs, or a white page. Since
    https://github.com/streamlit/streamlit/pull/9381.
    """
    from streamlit.runtime.forward_msg_queue import ForwardMsgQueue

    clear = ForwardMsgQueue.clear
    _expect(clear, "retain_lifecycle_msgs", "fragment_ids_this_run")
    ForwardMsgQueue()._delta_index_map  # noqa: B018 - it must be there

    def clear_unless_a_fragment_begins(
        queue: ForwardMsgQueue, retain_lifecycle_msgs: bool = False, fragment_ids_this_run: list[str] | None = None
    ) -> None:
        if fragment_ids_this_run:
            queue._delta_index_map = {}  # new messages are sent after the queued ones, not instead of them
        else:
            clear(queue, retain_lifecycle_msgs, fragment_ids_this_run)

    ForwardMsgQueue.clear = clear_unless_a_fragment_begins  # type: ignore[assignment, method-assign]


def ignore_refreshes_of_other_pages() -> None:
    """Let a session ignore a refresh, or a click in a fragment, that a browser sent from a page the session has left.

    A fragment of all pages refreshes every few seconds, also during a change of pages. Streamlit runs it after the
    change, as part of the previous page, and the browser then drops the new page. The page that a session shows is the
    one that `st.navigation` set last: a stopped run only names the page it was for. The browser stops its timers at the
    change (https://github.com/streamlit/streamlit/pull/9617), which does not call back what it has sent.
    """
    from streamlit.runtime.pages_manager import PagesManager
    from streamlit.runtime.scriptrunner import ScriptRunContext, ScriptRunner
    from streamlit.runtime.scriptrunner_utils.script_requests import RerunData

    last_pages: WeakKeyDictionary[PagesManager, str] = WeakKeyDictionary()
    run_script, set_page = ScriptRunner._run_script, ScriptRunContext.set_mpa_v2_page
    _expect(run_script, "rerun_data")
    _expect(set_page, "page_script_hash")
    if "_pages_manager" not in ScriptRunner.__init__.__code__.co_names:
        raise AttributeError("ScriptRunner has no _pages_manager")

    def set_and_remember(context: ScriptRunContext, page: str) -> None:
        set_page(context, page)
        last_pages[context.pages_manager] = page

    def run_unless_of_another_page(runner: ScriptRunner, request: RerunData) -> None:
        is_of_fragments = bool(request.fragment_id_queue)
        last_page = last_pages.get(runner._pages_manager, request.page_script_hash)
        if not is_of_fragments or request.page_script_hash == last_page:
            run_script(runner, request)

    ScriptRunContext.set_mpa_v2_page = set_and_remember  # type: ignore[assignment, method-assign]
    ScriptRunner._run_script = run_unless_of_another_page  # type: ignore[assignment, method-assign]
