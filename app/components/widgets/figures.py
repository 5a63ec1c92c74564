"""The frame that all charts share: title, unit, axes, and what to show without data."""

import re
from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
import streamlit as st

from app import theme
from app.components.widgets import exports
from app.components.widgets.figure_data import figure_rows
from db.rows.runs import MetricPoint

HEIGHT = 250
MAX_TICKED_STEPS = 12
LOG_AXIS = {"type": "log", "rangemode": "normal", "tickformat": ".3~g"}
"""A logarithmic axis whose ticks show whole values, between powers of ten too."""
_CONFIG = {
    "displaylogo": False,
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d", "zoomIn2d", "zoomOut2d"],
    "toImageButtonOptions": {"format": "png", "scale": 2},
}


def new_figure(height: int = HEIGHT) -> go.Figure:
    """Return an empty figure in the look of the workbench."""
    colours = theme.palette()
    axis = {"gridcolor": colours.grid, "zeroline": False, "linecolor": colours.grid, "tickfont": {"size": 11}}
    title = {"text": "step", "font": {"size": 11}, "standoff": 4}
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


def add_line(figure: go.Figure, name: str, points: Sequence[MetricPoint], colour: str, **style: object) -> None:
    """Add one curve; extra `style` goes to the line.

    It is SVG, since at most a few hundred points are drawn, and travels as binary numbers, a third of their text.
    """
    figure.add_trace(
        go.Scatter(
            x=np.array([point.step for point in points], dtype=np.int32),
            y=np.array([point.value for point in points], dtype=np.float32),
            name=name,
            mode="lines" if len(points) > 1 else "markers",
            line={"color": colour, "width": 2, **style},
            marker={"color": colour},
            hovertemplate="%{y:.4~g}",
        )
    )


def mark_whole_steps(figure: go.Figure) -> None:
    """Tick every step where there are few, since plotly would put ticks between them."""
    if figure.layout.xaxis.type == "category":
        return
    steps = [step for trace in figure.data if "x" in trace for step in trace.x]
    is_whole = all(step == int(step) for step in steps)
    if steps and is_whole and max(steps) - min(steps) <= MAX_TICKED_STEPS:
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

    `explanation` appears when the pointer rests on the mark beside the title.
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
            st.plotly_chart(figure, key=key, config=_CONFIG, alt=alt)
