"""The frame that all charts share: title, unit, axes, and what to show without data."""

import re
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
import streamlit as st

from app import theme
from app.components.widgets import curve_view, exports
from app.components.widgets.curve_lines import Line, smoothed
from app.components.widgets.curve_view import CurveView
from app.components.widgets.figure_data import figure_rows

HEIGHT = 250
MAX_TICKED_STEPS = 12
_SMALL = 1e-3
_CONFIG = {
    "displaylogo": False,
    "doubleClick": "autosize",
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d", "zoomIn2d", "zoomOut2d"],
    "toImageButtonOptions": {"format": "png", "scale": 2},
}


def new_figure(height: int = HEIGHT) -> go.Figure:
    """Return an empty figure in the look of the workbench."""
    colours = theme.palette()
    axis = {"gridcolor": colours.grid, "zeroline": False, "linecolor": colours.grid, "tickfont": {"size": 11}}
    title = {"text": "step", "font": {"size": 11}, "standoff": 12}
    # All at once, because every update of a figure validates the whole figure again.
    return go.Figure(
        layout={
            "height": height,
            "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "font": {"color": colours.text, "size": 12},
            "hovermode": "x unified",
            "legend": {
                "orientation": "h",
                "y": 1.02,
                "yanchor": "bottom",
                "x": 0,
                "font": {"size": 11},
                "traceorder": "normal",
            },
            "uirevision": "keep",
            "xaxis": {**axis, "title": title, "showgrid": False, "automargin": True},
            "yaxis": {**axis, "rangemode": "tozero", "automargin": True},
        }
    )


@dataclass(frozen=True, slots=True)
class Look:
    """How a curve looks, and its values under the pointer: in percent where the axis is."""

    colour: str
    dash: str = "solid"
    is_share: bool = False
    bounds: tuple[str, str] = ("least", "largest")
    """What the ends of its band are, where it has one."""

    @property
    def hover(self) -> str:
        """Plotly's template of a value under the pointer."""
        return "%{y:.3~%}" if self.is_share else "%{y:.4~g}"


def add_line(figure: go.Figure, name: str, line: Line, look: Look, view: CurveView | None = None) -> None:
    """Add one curve, in a view smoothed and over its values as recorded, which are faint then.

    It is SVG, since at most a few hundred points are drawn, and travels as binary numbers, a third of their text.
    """
    drawn = line if view is None else curve_view.window_of(smoothed(line, view.smoothing), view)
    style = {"color": look.colour, "dash": look.dash}
    mode = "lines" if line.x.size > 1 else "markers"
    if drawn.low is not None and drawn.high is not None:
        edge = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
        figure.add_trace(go.Scatter(x=drawn.x, y=drawn.low, name=f"{name}, {look.bounds[0]}", **edge))
        filled = {"fill": "tonexty", "fillcolor": faded(look.colour, 0.16)}
        figure.add_trace(go.Scatter(x=drawn.x, y=drawn.high, name=f"{name}, {look.bounds[1]}", **edge, **filled))
    elif view is not None and view.smoothing:
        raw = curve_view.window_of(line, view)
        figure.add_trace(
            go.Scatter(
                x=raw.x, y=raw.y, name=f"{name}, as recorded", mode=mode, line={**style, "width": 1}, opacity=0.3,
                marker={"color": look.colour}, hoverinfo="skip", showlegend=False, legendgroup=name,
            )
        )  # fmt: skip
    figure.add_trace(
        go.Scatter(
            x=drawn.x, y=drawn.y, name=name, mode=mode, line={**style, "width": 2}, marker={"color": look.colour},
            hovertemplate=look.hover, legendgroup=name,
        )
    )  # fmt: skip


def show_shares(figure: go.Figure) -> None:
    """Label the y axis in percent, as the values under the pointer are."""
    figure.update_yaxes(tickformat=".3~%")


def mend_small_numbers(figure: go.Figure) -> None:
    """Write tiny values as powers of ten, where plotly would write 50 millionths as 50µ."""
    drawn = [np.asarray(trace.y) for trace in figure.data if trace.type == "scatter" and trace.y is not None]
    numbers = [values[np.isfinite(values)] for values in drawn if values.dtype.kind in "fiu"]
    largest = max((float(np.abs(values).max()) for values in numbers if values.size), default=0.0)
    if 0.0 < largest < _SMALL:
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
    return "-".join(re.findall(r"[a-z0-9]+", title.lower()))


def faded(colour: str, opacity: float) -> str:
    """Return a colour given as #RRGGBB with an opacity, as CSS and plotly write it."""
    red, green, blue = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity:.2f})"


def show_card(
    title: str, unit: str, figure: go.Figure | None, key: str, alt: str, explanation: str | None = None
) -> None:
    """Show a figure framed under its title and unit, with its values to download; None: there are no values yet.

    `explanation` appears when the pointer rests on the icon beside the title.
    """
    with st.container(border=True, gap="xxsmall", key=f"card-{key}"):
        with st.container(horizontal=True, wrap=False, vertical_alignment="center"):
            st.markdown(f"**{title}** &nbsp; :gray[:small[{unit}]]", width="stretch", help=explanation)
            if figure is not None:
                exports.show(lambda: figure_rows(figure), file_name(title), key)
        if figure is None:
            with st.container(height=HEIGHT, border=False, vertical_alignment="center", horizontal_alignment="center"):
                st.markdown(":gray[No values yet]", width="content")
        else:
            mark_whole_steps(figure)
            mend_small_numbers(figure)
            st.plotly_chart(figure, key=key, config=_CONFIG, alt=alt)
