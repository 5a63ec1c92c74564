"""The page shell: Streamlit's index page with the workbench's title and the server's address."""

import re
from functools import cache
from pathlib import Path

import streamlit
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse
from starlette.routing import Route

from app.page_list import PATHS
from app.queries.runs import names_for_keyboard
from app.serving import api, streamlit_changes
from app.serving.gate import script_hash

TITLE = "ExGRPO Workbench"
WITH_CHARTS = frozenset({"/run", "/compare", "/replay_buffer"})
WITH_TABLES = frozenset({"/", "/trajectories", "/benchmarks"})
"""Pages whose first view has charts or tables."""
_STATIC = Path(streamlit.__file__).parent / "static"
_SCRIPT_FILES = (
    "history.js", "recovery.js", "busy_buttons.js", "connection.js", "keyboard.js", "lazy_charts.js", "row_keys.js",
    "shared_zoom.js",
)  # fmt: skip
_RUNS_PATH = "/_workbench/runs"
_MAX_RUNS = 8
_ADDRESS_SCRIPT = "<script>window.__streamlit = {BACKEND_BASE_URL: new URL('.', location.href).href}</script>"


@cache
def html(path: str = "/") -> str:
    """Return the shell with the server's address, which may end in a path that a proxy takes away.

    A page with charts or tables loads their scripts at once, not after its script has run: plotly has 5 MB.
    """
    text = (_STATIC / "index.html").read_text(encoding="utf-8")
    text = text.replace("<head>", f"<head>{_ADDRESS_SCRIPT}{_scripts()}", 1)
    text = text.replace("</head>", f"{_preloads(path)}</head>", 1)
    return text.replace("<title>Streamlit<", f"<title>{TITLE}<", 1)


def _preloads(path: str) -> str:
    """Return the elements that load a page's scripts early, by the names that this version of Streamlit gave them."""
    wanted = [*(["PlotlyChart"] if path in WITH_CHARTS else []), *(["DataFrame"] if path in WITH_TABLES else [])]
    files = [file for name in wanted for file in sorted(streamlit_changes.FOLDER.glob(f"{name}.*.js"))]
    return "".join(f'<link rel="modulepreload" crossorigin href="./static/js/{file.name}">' for file in files)


def _scripts() -> str:
    """Return the scripts that lie beside this file, each in its element."""
    folder = Path(__file__).parent
    return "".join(f"<script>{(folder / name).read_text(encoding='utf-8')}</script>" for name in _SCRIPT_FILES)


@cache
def inline_script_hashes() -> tuple[str, ...]:
    """Return the policy's hashes of the inline scripts in the shell, so that no other inline script runs."""
    return tuple(script_hash(script) for script in re.findall(r"<script>(.*?)</script>", html(), re.DOTALL))


def routes() -> list[Route]:
    """Return the routes of the shell at every page's path, of the runs that Ctrl-K offers, and of programs."""
    return [*(Route(path, _serve) for path in PATHS), Route(_RUNS_PATH, _runs), *api.routes()]


async def _serve(request: Request) -> HTMLResponse:
    # The gate has checked the name; connection.js compares it with the address.
    text = html(request.url.path).replace("<html", f'<html data-host="{request.headers["host"]}"', 1)
    return HTMLResponse(text, headers={"Cache-Control": "no-cache"})


def _runs(request: Request) -> JSONResponse:
    """Answer with the newest runs whose name, model, data or tags have the words; a thread, since it reads."""
    found = names_for_keyboard(request.query_params.get("words", "").strip(), _MAX_RUNS)
    return JSONResponse([{"id": run.run_id, "name": run.name} for run in found], headers={"Cache-Control": "no-store"})
