"""Streamlit's script of charts, changed so that it starts in a fraction of the time and draws each chart once.

Streamlit 1.67 brings all of plotly: its maps, 3D and other kinds of charts that no page has take most of the time that
the script needs to start. And a chart is drawn before its width is known, out of sight, then again when it is, also
where nobody has scrolled to. With the change only the kinds in `KINDS` start, and a chart waits for its width, which
`style.css` leaves at 0 until `lazy_charts.js` sees the chart's place come near.
"""

import re
from functools import cache
from pathlib import Path

import streamlit
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

FOLDER = Path(streamlit.__file__).parent / "static" / "static" / "js"
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


class ChangedChartScript:
    """ASGI middleware that answers with the changed script in the place of Streamlit's."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._path = f"/static/js/{path().name}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or forward it."""
        if scope["type"] == "http" and scope["path"] == self._path:
            headers = {"Cache-Control": "public, max-age=31536000, immutable"}
            await Response(script(), media_type="text/javascript", headers=headers)(scope, receive, send)
        else:
            await self._app(scope, receive, send)
