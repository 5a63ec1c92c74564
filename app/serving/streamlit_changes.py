"""What Streamlit 1.67 should do: refresh fragments without loss, and start and draw charts in a fraction of the time.

A fragment's refresh loses no unsent message, and empties no new page. Neither fault has an issue at Streamlit.

Its script of charts brings all of plotly: maps, 3D and other kinds that no page has take most of the time that it
needs to start. And a chart is drawn before its width is known, out of sight, then again when it is, also where nobody
has scrolled to. With the change only the kinds in `KINDS` start, and a chart waits for its width, which `style.css`
leaves at 0 until `lazy_charts.js` sees the chart's place come near.
"""

import gzip
import re
import secrets
from functools import cache
from pathlib import Path
from weakref import WeakKeyDictionary

import streamlit
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from streamlit import config
from streamlit.runtime.forward_msg_queue import ForwardMsgQueue
from streamlit.runtime.pages_manager import PagesManager
from streamlit.runtime.scriptrunner import ScriptRunContext, ScriptRunner
from streamlit.runtime.scriptrunner_utils.script_requests import RerunData
from streamlit.web import bootstrap

FOLDER = Path(streamlit.__file__).parent / "static" / "static" / "js"
COMPRESSION = 6
"""Level of gzip: 9 takes three times as long for 1% less."""
KINDS = frozenset({"bar", "box", "heatmap", "sankey"})
"""The kinds of charts that pages have, beside lines, which are always there."""
_MODULES = re.compile(r'([\w$]+)=_\(\{"lib/(\w+)\.js"')
_REGISTERED = re.compile(r"register\(\[([\w$(),]+)\]\)")
_FIRST_WIDTH = re.compile(r"return (\w)\?(\w+\(\w+,\{width:\1,)")
"""Where a chart without a width is left out; -1, which stands for unknown, counts as one there."""


@cache
def path() -> Path:
    """Return the script's file, whose name has a hash of its text."""
    return next(FOLDER.glob("PlotlyChart.*.js"))


@cache
def script() -> bytes:
    """Return the changed script."""
    text = path().read_text(encoding="utf-8")
    kinds = dict(_MODULES.findall(text))

    def of_pages(list_of_all: re.Match[str]) -> str:
        kept = [call for call in list_of_all[1].split(",") if kinds.get(call.removesuffix("()")) in KINDS]
        return f"register([{','.join(kept)}])"

    return _FIRST_WIDTH.sub(r"return \1>0?\2", _REGISTERED.sub(of_pages, text)).encode()


@cache
def compressed_script() -> bytes:
    """Return it as gzip: 1.4 MB, made once."""
    return gzip.compress(script(), COMPRESSION)


class ChangedChartScript:
    """ASGI middleware that answers with the changed script in the place of Streamlit's."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._path = f"/static/js/{path().name}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or forward it."""
        if scope["type"] == "http" and scope["path"] == self._path:
            headers = {"Cache-Control": "public, max-age=31536000, immutable"}
            takes_gzip = "gzip" in Headers(scope=scope).get("accept-encoding", "")
            headers |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"} if takes_gzip else {}
            content = await run_in_threadpool(compressed_script if takes_gzip else script)
            await Response(content, media_type="text/javascript", headers=headers)(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def load_options(options: dict[str, object]) -> None:
    """Set Streamlit's options, all others to their defaults.

    Streamlit would read `config.toml` of the user's home and of the current folder, which are of other applications.
    """
    config.get_config_files = lambda file_name: []  # noqa: ARG005 - Streamlit names it
    bootstrap.load_config_options(options | {"server.cookieSecret": secrets.token_hex(32)})


def keep_unsent_messages() -> None:
    """Make a fragment's refresh keep the messages of earlier runs that are still queued for the browser.

    Streamlit removes what the same fragment drew before, since the refresh draws it again. If that was part of a run of
    the whole page that a busy server has not sent yet, the browser takes the page as finished without it, removes the
    fragment's old element, and puts everything after it at wrong positions: empty tabs, or a white page. Since
    https://github.com/streamlit/streamlit/pull/9381.
    """
    clear = ForwardMsgQueue.clear

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
    last_pages: WeakKeyDictionary[PagesManager, str] = WeakKeyDictionary()
    run_script, set_page = ScriptRunner._run_script, ScriptRunContext.set_mpa_v2_page

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
