"""One chart of all pages: a figure, drawn in the browser by our component over a part of plotly.js.

The part has the kinds of traces that pages have, and is built by `make charts`. The server sends both scripts as one,
by an address that changes with its text.
"""

import gzip
import hashlib
import json
from functools import cache
from pathlib import Path

import plotly.graph_objects as go
import streamlit as st
from streamlit.components.v2.types import ComponentRenderer

from exgrpo.app import theme

KINDS = frozenset({"bar", "box", "heatmap", "sankey", "scatter"})
PLOTLY = Path(__file__).parent / "plotly.min.js.gz"
_LOADER = """export default async (component) =>
  (await import(new URL("{address}", location.href))).default(component);
"""


@cache
def script() -> bytes:
    """Return the module of plotly and of the charts, compressed by gzip."""
    text = gzip.decompress(PLOTLY.read_bytes()) + (Path(__file__).parent / "chart.js").read_bytes()
    return gzip.compress(text, mtime=0)


@cache
def address() -> str:
    """Return the path of the script below the workbench's own address, which has a hash of its text."""
    return f"_workbench/charts.{hashlib.sha256(script()).hexdigest()[:16]}.js"


@cache
def _component() -> ComponentRenderer:
    return st.components.v2.component("chart", js=_LOADER.format(address=address()), isolate_styles=False)


def show(figure: go.Figure, key: str, alt: str, *, has_tools: bool = True) -> None:
    """Show a figure in the place of its height; `alt` says in words what it shows, to those who cannot see it."""
    words = json.dumps({"key": key, "alt": alt, "hasTools": has_tools, "isDark": theme.palette() is theme.DARK})
    data = f'{words[:-1]},"figure":{figure.to_json()}}}'
    _component()(key=key, data=data.encode(), height=figure.layout.height)


def offer_files(key: str, title: str, unit: str, name: str) -> None:
    """Show buttons that save the chart of a key as PNG, SVG or PDF, on white, with its title, unit and legend in it.

    The browser draws them; a PDF is its print of the figure alone, which keeps lines and letters as such.
    """
    given = {"of": key, "title": title, "unit": unit, "name": name, "colours": theme.light_for_dark()}
    _component()(key=f"files-{key}", data=json.dumps(given, separators=(",", ":")).encode())
