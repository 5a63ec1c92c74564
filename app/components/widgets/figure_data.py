"""The values behind a figure as rows, for drawing it again elsewhere."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

Row = dict[str, object]


@dataclass(frozen=True, slots=True)
class _TraceValues:
    """The values of one trace at positions along the axis `title`, with the interval bounds of each value."""

    name: str
    title: str
    positions: list[Any]
    values: list[Any]
    intervals: dict[str, list[Any]]


def figure_rows(figure: go.Figure) -> list[Row]:
    """Return one row per position with a column per curve; where positions repeat, one row per point instead.

    Positions are on the x axis, or on the y axis if it has names.
    """
    traces = list(figure.data)
    if any(trace.type == "sankey" for trace in traces):
        return [row for trace in traces for row in _ways(trace)]
    if any(trace.type == "heatmap" for trace in traces):
        return [row for trace in traces for row in _cells(trace, _title(figure))]
    curves = [_trace_values(trace, figure) for trace in traces]
    if all(len(set(curve.positions)) == len(curve.positions) for curve in curves):
        return _joined(curves)
    return [row for curve in curves for row in _points(curve)]


def _title(figure: go.Figure) -> str:
    return figure.layout.xaxis.title.text or "x"


def _trace_values(trace: Any, figure: go.Figure) -> _TraceValues:  # noqa: ANN401 - plotly's traces share no type
    x, y = _values(trace.x), _values(trace.y)
    if not any(isinstance(value, str) for value in y):
        intervals = _intervals(trace.error_y, y) if "error_y" in trace else {}
        return _TraceValues(trace.name or "", _title(figure), x, y, intervals)
    title = figure.layout.yaxis.title.text or "name"
    return _TraceValues(trace.name or _title(figure), title, y, x, _intervals(trace.error_x, x))


def _intervals(error: Any, values: Sequence[Any]) -> dict[str, list[Any]]:  # noqa: ANN401 - one class for each trace
    above, below = _values(error.array), _values(error.arrayminus)
    if not below:
        return {"half interval": above} if above else {}
    return {
        "least": [value - reach for value, reach in zip(values, below, strict=True)],
        "largest": [value + reach for value, reach in zip(values, above, strict=True)],
    }


def _joined(curves: Iterable[_TraceValues]) -> list[Row]:
    rows: dict[Any, Row] = {}
    for number, curve in enumerate(curves, start=1):
        name = curve.name or ("value" if number == 1 else f"value {number}")
        columns = {name: curve.values} | {f"{name}, {kind}": bounds for kind, bounds in curve.intervals.items()}
        for position, x in enumerate(curve.positions):
            row = rows.setdefault(x, {curve.title: x})
            row |= {column: bounds[position] for column, bounds in columns.items()}
    return [row for _, row in sorted(rows.items())] if _are_numbers(rows) else list(rows.values())


def _points(curve: _TraceValues) -> list[Row]:
    columns = {"value": curve.values} | curve.intervals
    return [
        {"series": curve.name, curve.title: x} | {column: bounds[position] for column, bounds in columns.items()}
        for position, x in enumerate(curve.positions)
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


def _are_numbers(positions: Iterable[object]) -> bool:
    return all(isinstance(value, int | float) for value in positions)
