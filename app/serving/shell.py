"""The page shell: Streamlit's index page with the workbench's title and the server's address."""

import re
from functools import cache
from pathlib import Path
from urllib.parse import quote

import streamlit
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from exgrpo.app import theme
from exgrpo.app.components.widgets import chart
from exgrpo.app.page_list import FORMER_PATHS, PATHS, moved
from exgrpo.app.queries.runs import names_for_keyboard
from exgrpo.app.serving import downloads
from exgrpo.app.serving.gate import script_hash
from exgrpo.db.rows.display_names import distinct_names

TITLE = "ExGRPO Workbench"
TRAJECTORIES = "/run?view=Trajectories"
WITH_CHARTS = frozenset({"/run", "/compare"})
WITH_TABLES = frozenset({"/", "/benchmarks", TRAJECTORIES})
"""Pages whose first view has charts or tables; that tab of a run has no chart."""
_STYLE = Path(__file__).parent.parent / "style.css"
_STATIC = Path(streamlit.__file__).parent / "static"
_SCRIPT_FILES = (
    "history.js", "recovery.js", "busy_buttons.js", "connection.js", "keyboard.js", "menus.js",
    "table.js", "tabs.js",
)  # fmt: skip
_RUNS_PATH = "/_workbench/runs"
_MAX_RUNS = 8
COMPRESSION = 6
"""Level of gzip: 9 takes three times as long for 1% less."""
_ADDRESS_SCRIPT = "<script>window.__streamlit = {BACKEND_BASE_URL: new URL('.', location.href).href}</script>"


@cache
def html(path: str = "/") -> str:
    """Return the shell with the server's address, which may end in a path that a proxy takes away.

    A page with charts or tables loads their scripts at once, not after its script has run. The rules of style.css
    hold from the first picture on; in the body they come after Streamlit's. Of a page's requests 64 are this shell's,
    nearly all for parts of Streamlit's own script.
    """
    text = (_STATIC / "index.html").read_text(encoding="utf-8")
    text = text.replace("<head>", f"<head>{_ADDRESS_SCRIPT}{_scripts()}", 1)
    text = text.replace('href="./favicon.png"', f'href="data:image/svg+xml,{quote(theme.ICON)}"', 1)
    text = text.replace("</head>", f"{_preloads(path)}</head>", 1)
    text = text.replace("</body>", f"<style>{_STYLE.read_text(encoding='utf-8')}</style></body>", 1)
    return text.replace("<title>Streamlit<", f"<title>{TITLE}<", 1)


def _preloads(path: str) -> str:
    """Return the elements that load a page's scripts early, by the names that this version of Streamlit gave them."""
    has_any = path in WITH_CHARTS | WITH_TABLES
    files = [f"static/js/{file.name}" for file in (_STATIC / "static/js").glob("BidiComponent.*.js")] if has_any else []
    files += [chart.address()] if path in WITH_CHARTS else []
    return "".join(f'<link rel="modulepreload" crossorigin href="./{file}">' for file in files)


def _scripts() -> str:
    folder = Path(__file__).parent
    return "".join(f"<script>{(folder / name).read_text(encoding='utf-8')}</script>" for name in _SCRIPT_FILES)


@cache
def inline_script_hashes() -> tuple[str, ...]:
    """Return the policy's hashes of the inline scripts in the shell, so that no other inline script runs."""
    return tuple(script_hash(script) for script in re.findall(r"<script>(.*?)</script>", html(), re.DOTALL))


def routes() -> list[Route]:
    """Return the routes of the shell at every page's path, of its charts, of what Ctrl-K offers, and of files."""
    own = [Route(f"/{chart.address()}", _charts), Route(_RUNS_PATH, _runs)]
    return [*(Route(path, _serve) for path in (*PATHS, *FORMER_PATHS)), *own, *downloads.routes()]


async def _serve(request: Request) -> Response:
    path, query = request.url.path, request.query_params
    if (place := moved(path, query.multi_items())) is not None:
        return RedirectResponse(f"./{place}")
    # The gate has checked the name; connection.js compares it with the address.
    shell = html(TRAJECTORIES if f"{path}?view={query.get('view')}" == TRAJECTORIES else path)
    text = shell.replace("<html", f'<html data-host="{request.headers["host"]}"', 1)
    return HTMLResponse(text, headers={"Cache-Control": "no-cache"})


def _charts(request: Request) -> Response:  # noqa: ARG001 - Starlette passes it
    headers = {"Content-Encoding": "gzip", "Cache-Control": "public, max-age=31536000, immutable"}
    return Response(chart.script(), media_type="text/javascript", headers=headers)


def _runs(request: Request) -> JSONResponse:
    """Answer with the newest runs whose name, model, data, tags or notes have the words; a thread, since it reads."""
    found = names_for_keyboard(request.query_params.get("words", "").strip(), _MAX_RUNS)
    names = distinct_names((run.run_id, run.name) for run in found)
    return JSONResponse(
        [{"id": run_id, "name": name} for run_id, name in names.items()], headers={"Cache-Control": "no-store"}
    )
