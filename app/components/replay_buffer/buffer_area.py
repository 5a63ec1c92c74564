"""How many questions the buffer and the retired set hold."""

from dataclasses import replace

import plotly.graph_objects as go

from app import theme
from app.components.widgets import curve_view, figures
from app.components.widgets.curve_view import Drawing, cut
from app.components.widgets.curves import Series
from app.components.widgets.figures import Look

_AREAS = ("buffer/num_questions", "buffer/num_retired")
_ALL = "buffer/num_in_data"
KEYS = (*_AREAS, _ALL)


def show(series: Series, key: str, drawing: Drawing | None = None) -> None:
    """Show the replay buffer and the retired set as stacked areas over the steps, under the data set's size."""
    figures.show_card(
        "Replay buffer and retired set",
        "questions",
        area(series, drawing or Drawing()),
        key,
        "Stacked areas: questions in the replay buffer, questions retired; a line: all questions",
    )


def area(series: Series, drawing: Drawing) -> go.Figure | None:
    """Return the stacked areas, or None without values."""
    if not any(series.get(key) for key in _AREAS):
        return None
    colours = theme.palette()
    figure = figures.new_figure()
    for key, name, colour in zip(_AREAS, ("replay buffer", "retired"), (colours.replay, colours.retired), strict=True):
        figures.add_line(figure, name, cut(drawing.line(series.get(key, [])), drawing.view.zoom), Look(colour))
    figure.update_traces(stackgroup="all", line={"width": 1})
    if series.get(_ALL):
        line = cut(drawing.line(series[_ALL]), drawing.view.zoom)
        figures.add_line(figure, "all questions, |D|", line, Look(colours.muted, "dot"))
    curve_view.dress(figure, replace(drawing.view, has_log_axis=False), drawing.span)
    return figure
