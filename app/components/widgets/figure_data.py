"""The values behind a figure as rows, for drawing it again elsewhere."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

Row = dict[str, object]


@dataclass(frozen=True, slots=True)
class _Curve:
    """What one trace says: values at places along the axis that `title` names, with what belongs to each value."""

    name: str
    title: str
    places: list[Any]
    values: list[Any]
    intervals: dict[str, list[Any]]


def figure_rows(figure: go.Figure) -> list[Row]:
    """Return one row a place with a column a curve; where places repeat, one row a point instead.

    Places are on the x axis, or on the y axis where that one holds names.
    """
    traces = list(figure.data)
    if any(trace.type == "sankey" for trace in traces):
        return [row for trace in traces for row in _ways(trace)]
    if any(trace.type == "heatmap" for trace in traces):
        return [row for trace in traces for row in _cells(trace, _title(figure))]
    curves = [_curve(trace, figure) for trace in traces]
    if all(len(set(curve.places)) == len(curve.places) for curve in curves):
        return _joined(curves)
    return [row for curve in curves for row in _points(curve)]


def _title(figure: go.Figure) -> str:
    return figure.layout.xaxis.title.text or "x"


def _curve(trace: Any, figure: go.Figure) -> _Curve:  # noqa: ANN401 - plotly's traces share no type
    x, y = _values(trace.x), _values(trace.y)
    if not any(isinstance(value, str) for value in y):
        intervals = _intervals(trace.error_y, y) if "error_y" in trace else {}
        return _Curve(trace.name or "", _title(figure), x, y, intervals)
    title = figure.layout.yaxis.title.text or "name"
    return _Curve(trace.name or _title(figure), title, y, x, _intervals(trace.error_x, x))


def _intervals(error: Any, values: Sequence[Any]) -> dict[str, list[Any]]:  # noqa: ANN401 - one class for each trace
    above, below = _values(error.array), _values(error.arrayminus)
    if not below:
        return {"half interval": above} if above else {}
    return {
        "least": [value - reach for value, reach in zip(values, below, strict=True)],
        "largest": [value + reach for value, reach in zip(values, above, strict=True)],
    }


def _joined(curves: Iterable[_Curve]) -> list[Row]:
    rows: dict[Any, Row] = {}
    for number, curve in enumerate(curves, start=1):
        name = curve.name or ("value" if number == 1 else f"value {number}")
        columns = {name: curve.values} | {f"{name}, {kind}": bounds for kind, bounds in curve.intervals.items()}
        for position, x in enumerate(curve.places):
            row = rows.setdefault(x, {curve.title: x})
            row |= {column: bounds[position] for column, bounds in columns.items()}
    return [row for _, row in sorted(rows.items())] if _are_numbers(rows) else list(rows.values())


def _points(curve: _Curve) -> list[Row]:
    columns = {"value": curve.values} | curve.intervals
    return [
        {"series": curve.name, curve.title: x} | {column: bounds[position] for column, bounds in columns.items()}
        for position, x in enumerate(curve.places)
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


def _values(values: Any) -> list[Any]:  # noqa: ANN401 - a tuple, an array or nothing
    if values is None:
        return []
    return values.tolist() if hasattr(values, "tolist") else list(values)


def _are_numbers(places: Iterable[object]) -> bool:
    return all(isinstance(value, int | float) for value in places)
