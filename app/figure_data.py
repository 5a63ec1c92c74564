"""The values behind a figure as rows, for whoever wants to draw it again."""

from collections.abc import Iterable
from typing import Any

import plotly.graph_objects as go

Row = dict[str, object]


def figure_rows(figure: go.Figure) -> list[Row]:
    """Return one row a place on the x axis with a column a curve; where places repeat, one row a point instead."""
    traces = list(figure.data)
    if any(trace.type == "sankey" for trace in traces):
        return [row for trace in traces for row in _ways(trace)]
    if any(trace.type == "heatmap" for trace in traces):
        return [row for trace in traces for row in _cells(trace, _title(figure))]
    if all(len(set(_values(trace.x))) == len(_values(trace.x)) for trace in traces):
        return _joined(traces, _title(figure))
    return [row for trace in traces for row in _points(trace, _title(figure))]


def _title(figure: go.Figure) -> str:
    return figure.layout.xaxis.title.text or "x"


def _joined(traces: Iterable[Any], title: str) -> list[Row]:
    rows: dict[Any, Row] = {}
    for number, trace in enumerate(traces, start=1):
        name = trace.name or ("value" if number == 1 else f"value {number}")
        error = _values(trace.error_y.array)
        for position, (x, y) in enumerate(zip(_values(trace.x), _values(trace.y), strict=False)):
            row = rows.setdefault(x, {title: x})
            row[name] = y
            if position < len(error):
                row[f"{name}, half interval"] = error[position]
    return sorted(rows.values(), key=lambda row: row[title]) if _are_numbers(rows) else list(rows.values())


def _points(trace: Any, title: str) -> list[Row]:  # noqa: ANN401 - plotly's traces share no type
    return [
        {"series": trace.name or "", title: x, "value": y}
        for x, y in zip(_values(trace.x), _values(trace.y), strict=False)
    ]


def _cells(trace: Any, title: str) -> list[Row]:  # noqa: ANN401 - plotly's traces share no type
    names = [str(name) for name in _values(trace.y)]
    return [
        {title: x} | {name: line[column] for name, line in zip(names, trace.z, strict=True)}
        for column, x in enumerate(_values(trace.x))
    ]


def _ways(trace: Any) -> list[Row]:  # noqa: ANN401 - plotly's traces share no type
    labels, link = _values(trace.node.label), trace.link
    ways = zip(_values(link.source), _values(link.target), _values(link.value), strict=True)
    return [{"from": labels[source], "to": labels[target], "value": value} for source, target, value in ways]


def _values(found: Any) -> list[Any]:  # noqa: ANN401 - a tuple, an array or nothing
    if found is None:
        return []
    return found.tolist() if hasattr(found, "tolist") else list(found)


def _are_numbers(places: Iterable[object]) -> bool:
    return all(isinstance(place, int | float) for place in places)
