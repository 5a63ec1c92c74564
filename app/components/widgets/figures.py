"""The frame that all charts share: title, unit, axes, what to show without data, and their values as rows."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from exgrpo.app import theme
from exgrpo.app.components.widgets import chart, data_table
from exgrpo.app.components.widgets.curve_view import HUGE, INTERVAL, WHOLE, CurveView, Line, cut, smoothed
from exgrpo.app.formats import SHARE_HOVER, hover, literal
from exgrpo.app.theme import Look

HEIGHT = 250
NUM_OPEN = 6
"""Charts of a page that are not folded."""
MAX_TICKED_STEPS = 12
_SMALL = 1e-3
_DOT = 6
FAINT, OF_PARENT = 0.3, "of the parent"
_AS_DRAWN = "The points as drawn, not all steps; Run and Compare export all metrics."
_IN_ORDER = {"traceorder": "normal"}


def new_figure(
    height: int = HEIGHT, x_title: str = "step", *, x: Mapping[str, object] | None = None,
    y: Mapping[str, object] | None = None, **layout: object,
) -> go.Figure:  # fmt: skip
    """Return an empty figure in the look of the workbench; axes and `layout` may have further settings of plotly."""
    colours = theme.palette()
    small = {"size": 11, "color": colours.muted}
    axis = {"gridcolor": colours.grid, "zeroline": False, "linecolor": colours.grid, "tickfont": small}
    title = {"text": x_title, "font": small, "standoff": 12}
    spike = {"spikethickness": 1, "spikecolor": colours.muted, "spikedash": "dot", "spikemode": "across"}
    x_axis = {**axis, "title": title, "showgrid": False, "automargin": True, **spike, **(x or {})}
    # All at once, because every update of a figure validates the whole figure again.
    return go.Figure(
        layout={
            "height": height,
            "template": {},  # the one that Streamlit sets has 7 kB
            "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "font": {"color": colours.text, "size": 12, "family": theme.FONT},
            "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": colours.muted, "activecolor": colours.text},
            "hovermode": "x unified",
            "hoversort": "value descending",
            "hoverlabel": {"bgcolor": colours.ground, "bordercolor": colours.grid},
            "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"size": 11}, **_IN_ORDER},
            "uirevision": "keep",
            "xaxis": x_axis,
            "yaxis": {**axis, "rangemode": "tozero", "automargin": True, **(y or {})},
            **layout,
        }
    )


def add_line(
    figure: go.Figure, name: str, line: Line, look: Look, view: CurveView = WHOLE, *, is_share: bool = False,
) -> None:  # fmt: skip
    """Add one curve, in a view smoothed and over its values as recorded, which are faint then.

    Shares are in percent under the pointer. What a branch has of its parent is faint, too.

    It is SVG, since at most a few hundred points are drawn, and travels as binary numbers, a third of their text.
    """
    drawn = cut(smoothed(line, view.smoothing), view.zoom)
    style = {"color": look.colour, "dash": look.dash}
    left_out = _left_out(line.y, view)
    label = f"{name} ({left_out}, not drawn)".strip() if left_out else name
    if drawn.low is not None and drawn.high is not None:
        edge = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
        figure.add_trace(go.Scatter(x=drawn.x, y=drawn.low, name=f"{name}, {line.band[0]}", **edge))
        filled = {"fill": "tonexty", "fillcolor": faded(look.colour, 0.16)}
        figure.add_trace(go.Scatter(x=drawn.x, y=drawn.high, name=f"{name}, {line.band[1]}", **edge, **filled))
    elif view.smoothing:
        raw = cut(line, view.zoom)
        figure.add_trace(
            go.Scatter(
                x=raw.x, y=raw.y, name=f"{name}, as recorded", line={**style, "width": 1}, opacity=FAINT,
                hoverinfo="skip", showlegend=False, legendgroup=name, **visible(raw.y, look.colour),
            )
        )  # fmt: skip
    written = SHARE_HOVER if is_share else hover(drawn.y.tolist())
    of_parent = {"name": f"{name}, {OF_PARENT}", "opacity": FAINT, "showlegend": False}
    num_before = drawn.num_before
    for part, named in ((slice(num_before), of_parent), (slice(num_before, None), {"name": label})):
        if num_before or named is not of_parent:
            figure.add_trace(
                go.Scatter(
                    x=drawn.x[part], y=drawn.y[part], line={**style, "width": 2}, legendgroup=name, **named,
                    hovertemplate=f"%{{y:{written}}}", **visible(drawn.y[part], look.colour),
                )
            )  # fmt: skip
    if left_out:
        figure.data[-1].showlegend = True


def _left_out(values: np.ndarray, view: CurveView) -> str:
    """Return how many points have no place on the axis, by their kind; "" of none. A gap shows one that is NaN."""
    counts = {
        "infinite": np.isinf(values),
        "NaN": np.isnan(values) & np.isnan(values).all(),
        "zero or negative": np.isfinite(values) & (values <= 0) & view.has_log_axis,
    }
    found = [f"{are.sum():,} {kind}" for kind, are in counts.items() if are.any()]
    return f"of {values.size:,} points {', '.join(found)}" if found else ""


def show_left_out_only(figure: go.Figure) -> None:
    """Show in the legend no curves but those with points that have no place on the axis; files name all if none has."""
    is_shown = any(trace.showlegend for trace in figure.data)
    if is_shown:
        figure.for_each_trace(lambda trace: trace.update(showlegend=bool(trace.showlegend)))
    figure.update_layout(showlegend=is_shown)


def visible(values: np.ndarray, colour: str) -> dict[str, object]:
    """Return how a curve is drawn so that each value shows: one between gaps, to which no line leads, is a dot."""
    is_known = np.isfinite(values)
    has_neighbour = np.zeros_like(is_known)
    has_neighbour[1:] |= is_known[:-1]
    has_neighbour[:-1] |= is_known[1:]
    is_alone = is_known & ~has_neighbour
    if not is_alone.any():
        return {"mode": "lines"}
    return {"mode": "lines+markers", "marker": {"color": colour, "size": np.where(is_alone, _DOT, 0)}}


def bars(
    x: Sequence[object] | np.ndarray, y: Sequence[float] | np.ndarray, name: str, colour: str, hover: str
) -> go.Bar:
    """Return bars of one colour; `hover` is plotly's template of a bar under the pointer."""
    return go.Bar(x=x, y=y, name=name, marker={"color": colour, "cornerradius": 3}, hovertemplate=hover)


def reaches(rows: Sequence[tuple[float, float, float]], **look: object) -> dict[str, object]:
    """Return error bars from the lower to the upper end of intervals, each row a value with both ends."""
    above, below = [high - value for value, _, high in rows], [value - low for value, low, _ in rows]
    return {"type": "data", "symmetric": False, "array": above, "arrayminus": below, **look}


def show_shares(figure: go.Figure) -> None:
    """Label the y axis in percent, as the values under the pointer are."""
    figure.update_yaxes(tickformat=".3~%")


def use_powers_of_ten(figure: go.Figure) -> None:
    """Write tiny and huge values as powers of ten, where plotly would write 50 millionths as 50µ."""
    drawn = [np.asarray(trace.y) for trace in figure.data if trace.type == "scatter" and trace.y is not None]
    numbers = [values[np.isfinite(values)] for values in drawn if values.dtype.kind in "fiu"]
    largest = max((float(np.abs(values).max()) for values in numbers if values.size), default=0.0)
    if 0.0 < largest < _SMALL or largest >= HUGE:
        figure.update_yaxes(exponentformat="power")


def mark_whole_steps(figure: go.Figure) -> None:
    """Tick every step where there are few, since plotly would put ticks between them."""
    if figure.layout.xaxis.type == "category":
        return
    drawn = [np.asarray(trace.x, np.float64) for trace in figure.data if "x" in trace]
    steps = np.concatenate(drawn) if drawn else np.empty(0)
    if steps.size and np.ptp(steps) <= MAX_TICKED_STEPS and (steps == np.floor(steps)).all():
        figure.update_xaxes(tick0=0, dtick=1)


def file_name(title: str) -> str:
    """Return a title as the name of a file, without its ending: lower case, words joined by hyphens."""
    return "-".join(re.findall(r"[^\W_]+", title.lower()))


def colour_bar(title: str) -> dict[str, Any]:
    """Return the scale of a heat-map's colours."""
    return {
        "thickness": 10,
        "outlinewidth": 0,
        "tickfont": {"size": 11},
        "title": axis_title(title) | {"side": "right"},
    }


def axis_title(text: str) -> dict[str, object]:
    """Return the title of an axis of values, which most charts have as the unit next to their own title."""
    return {"text": text, "font": {"size": 11}}


def faded(colour: str, opacity: float) -> str:
    """Return a colour given as #RRGGBB with an opacity, as CSS and plotly write it."""
    red, green, blue = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity:.2f})"


def grid(name: str) -> DeltaGenerator:
    """Return a container with two cards a row where there is room."""
    return st.container(key=f"grid-{name}")


def show_tile(
    column: DeltaGenerator, title: str, value: str, below: str | None = None, explanation: str | None = None
) -> None:
    """Show a number in a frame, under its title; `explanation` appears at the icon next to that."""
    column.metric(
        title, value, below, delta_color="off", delta_arrow="off", border=True, height="stretch", help=explanation
    )


def show_tiles(tiles: Sequence[Sequence[Any]]) -> None:
    """Show tiles side by side, each given as what `show_tile` takes after the column."""
    for column, tile in zip(st.columns(len(tiles), gap="small"), tiles, strict=True):
        show_tile(column, *tile)


def show_card(
    title: str, unit: str, figure: go.Figure | None, key: str, alt: str, explanation: str | None = None
) -> None:
    """Show a figure framed under its title and unit, with its values to download; None: there are no values yet.

    `explanation` appears when the pointer rests on the icon next to the title.
    """
    with st.container(border=True, gap="xxsmall", key=f"card-{key}"):
        with st.container(horizontal=True, wrap=False, vertical_alignment="center"):
            st.markdown(f"**{literal(title.strip())}** &nbsp; :gray[:small[{unit}]]", width="stretch", help=explanation)
            if figure is not None:
                # `curve_view.dress` marks curves, which are thinned, and may be smoothed or cut.
                is_curve = figure.layout.meta is not None
                name = f"{file_name(title)}-as-drawn" if is_curve else file_name(title)
                data_table.export(
                    lambda: figure_rows(figure), name, key, note=_AS_DRAWN if is_curve else "",
                    pictures=lambda: chart.offer_files(key, title, unit, file_name(title)),
                )  # fmt: skip
        if figure is None:
            with st.container(height=HEIGHT, border=False, vertical_alignment="center", horizontal_alignment="center"):
                st.markdown(":gray[No values]", width="content")
        else:
            mark_whole_steps(figure)
            use_powers_of_ten(figure)
            chart.show(figure, key, alt)


Row = dict[str, object]
Columns = dict[str, list[Any]]


def figure_rows(figure: go.Figure) -> list[Row]:
    """Return one row per position with a column per curve; where positions repeat, one row per point instead.

    Positions are on the x axis, or on the y axis if it has names.
    """
    traces = list(figure.data)
    x_title = figure.layout.xaxis.title.text or "x"
    if any(trace.type == "sankey" for trace in traces):
        return [row for trace in traces for row in _ways(trace)]
    if any(trace.type == "heatmap" for trace in traces):
        return [row for trace in traces for row in _cells(trace, x_title)]
    has_names = [any(isinstance(value, str) for value in _values(trace.y)) for trace in traces]
    titles = [figure.layout.yaxis.title.text or "name" if named else x_title for named in has_names]
    curves = [_columns(trace, named) for trace, named in zip(traces, has_names, strict=True)]
    names = [trace.name or (x_title if named else "") for trace, named in zip(traces, has_names, strict=True)]
    if any(len(set(positions)) < len(positions) for positions, _ in curves):
        return [
            {"series": name, title: x} | {column: values[index] for column, values in columns.items()}
            for name, title, (positions, columns) in zip(names, titles, curves, strict=True)
            for index, x in enumerate(positions)
        ]
    rows: dict[Any, Row] = {}
    for number, (name, title, (positions, columns)) in enumerate(zip(names, titles, curves, strict=True), start=1):
        name = name or ("value" if number == 1 else f"value {number}")
        for index, x in enumerate(positions):
            row = rows.setdefault(x, {title: x})
            row |= {name if key == "value" else f"{name}, {key}": values[index] for key, values in columns.items()}
    are_numbers = all(isinstance(x, int | float) for x in rows)
    return [row for _, row in sorted(rows.items())] if are_numbers else list(rows.values())


def _columns(trace: Any, has_names: bool) -> tuple[list[Any], Columns]:  # noqa: ANN401 - plotly's traces share no type
    """Return the positions of a trace, and its values there with the bounds of their intervals, if any."""
    x, y = _values(trace.x), _values(trace.y)
    positions, values = (y, x) if has_names else (x, y)
    error = trace.error_x if has_names else trace.error_y if "error_y" in trace else None
    above, below = (_values(error.array), _values(error.arrayminus)) if error is not None else ([], [])
    if above and below:
        least = [None if reach is None else value - reach for value, reach in zip(values, below, strict=True)]
        largest = [None if reach is None else value + reach for value, reach in zip(values, above, strict=True)]
        return positions, {"value": values, INTERVAL[0]: least, INTERVAL[1]: largest}
    return positions, {"value": values} | ({"± 95%": above} if above else {})


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
