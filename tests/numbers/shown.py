"""All that a page shows, read off what Streamlit sends to a browser: tiles, tables, figures and sentences."""

import base64
import json
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from streamlit.testing.v1 import AppTest

from exgrpo.app import settings
from tests.app import recorded
from tests.app.page_texts import Table

MAIN_SCRIPT = Path(settings.__file__).parent / "main.py"
_COUNTED = re.compile(r" \([\d,]+\)$")
"""The end of an option that says how many rows it keeps."""


@dataclass(slots=True)
class Trace:
    """One curve, set of bars or map of a figure; `columns` has its arrays, such as `error_y.array`."""

    name: str
    columns: dict[str, list[Any]]


@dataclass(slots=True)
class Shown:
    """What a page shows. Figures have the title of their card, tables the description that screen readers say."""

    tiles: list[tuple[str, str, str]] = field(default_factory=list)
    tables: list[tuple[str, pd.DataFrame]] = field(default_factory=list)
    figures: list[tuple[str, list[Trace]]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)


def open_page(runs_root, name, /, **query):
    recorded.beat(runs_root, datetime.now(UTC))
    settings.configure(settings.AppSettings(runs_root))
    page = AppTest.from_file(str(MAIN_SCRIPT), default_timeout=60)
    page.query_params.update(query)
    page.switch_page(f"app_pages/{name}.py").run()
    assert not page.exception, page.exception[0].value
    return read(page)


def read(page):
    """Return what an open page shows, its controls left out but for links and for options with a count."""
    shown = Shown()
    _walk(page.main, shown, [""])
    return shown


def _walk(block, shown, title):
    for child in block.children.values():
        if hasattr(child, "children"):
            _walk(child, shown, title)
            continue
        kind, proto = child.type, child.proto
        if kind == "metric":
            shown.tiles.append((proto.label, proto.body, proto.delta))
        elif kind in {"arrow_data_frame", "dataframe"}:
            shown.tables.append((proto.alt or title[0], child.value))
        elif kind == "bidi_component" and proto.component_name == "exgrpo_table":
            table = Table(proto)
            shown.tables.append((table.data["alt"], table.value))
        elif kind == "bidi_component" and proto.component_name == "chart":
            traces = json.loads(proto.bytes)["figure"]["data"]
            made = [Trace(trace.get("name", ""), _in_order(trace, dict(_columns(trace)))) for trace in traces]
            shown.figures.append((title[0], made))
        elif kind in {"markdown", "caption", "text", "code", "html", "title", "subheader", "header"}:
            _read_text(getattr(child, "value", None) or proto.body, shown, title)
        else:
            shown.texts += _words(child)


def _words(child):
    """Return the words of a bar of progress or a link, and the options of a choice that have a count."""
    if child.type == "progress":
        return [child.proto.text]
    if child.type == "page_link":
        return [child.proto.label]
    options = child.options if child.type in {"selectbox", "button_group"} else []
    return [f"{child.proto.label}: {option}" for option in options if _COUNTED.search(option)]


def _read_text(text, shown, title):
    text = text.replace("\\:", ":")
    if text.startswith("**") and "&nbsp;" in text:
        title[0] = text.split("**")[1]
    if "<table " in text:
        shown.tables.append(_html_table(text))
    else:
        shown.texts.append(text)


def _html_table(text):
    """Return a table of scores by its name and first column; cells keep what makes them bold or underlined."""
    heads = re.findall(r'<th scope="col"[^>]*>(.*?)</th>', text)
    rows = []
    for row in re.findall(r"<tr[ >].*?</tr>", text, re.DOTALL):
        if name := re.search(r'<th scope="row"[^>]*>(?:<a [^>]*>)?([^<]*)', row):
            cells = re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL)
            rows.append([name[1].strip(), *(re.sub(r"</?(?:span|sup)[^>]*>", "", cell) for cell in cells)])
    frame = pd.DataFrame(rows, columns=["Line", *heads]).map(lambda cell: unescape(cell.replace("<br>", " ")).strip())
    [label] = re.findall(r'aria-label="([^"]*)"', text)
    return f"{label}: {heads[0]}", frame


def _in_order(trace, columns):
    """Return the ways of a flow by their names, and the values of boxes, whose order says nothing, sorted."""
    if trace["type"] == "sankey":
        names = columns["label"]
        ways = zip(columns["source"], columns["target"], columns["value"], strict=True)
        return _sorted((f"{names[source]} to {names[target]}", value) for source, target, value in ways)
    return columns if trace["type"] != "box" else _sorted(zip(columns["x"], columns["y"], strict=True), "y")


def _sorted(pairs, name="value"):
    rows = sorted(pairs)
    return {"x": [row[0] for row in rows], name: [row[1] for row in rows]}


def _columns(trace):
    for name in ("x", "y", "z", "text", "customdata"):
        if name in trace:
            yield name, _array(trace[name])
    for name in ("error_x", "error_y"):
        for side in ("array", "arrayminus"):
            if side in trace.get(name, {}):
                yield f"{name}.{side}", _array(trace[name][side])
    if "link" in trace:
        yield "label", _array(trace["node"]["label"])
        for name in ("source", "target", "value"):
            yield name, _array(trace["link"][name])


def _array(values):
    """Return an array of a figure, which plotly writes as a list or as binary numbers."""
    if isinstance(values, dict):
        array = np.frombuffer(base64.b64decode(values["bdata"]), np.dtype(values["dtype"]))
        if "shape" in values:
            array = array.reshape([int(size) for size in str(values["shape"]).split(",")])
        return list(array.tolist())
    return list(values) if isinstance(values, list) else [values]
