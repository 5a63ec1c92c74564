"""How many questions the buffer and the retired set hold."""

import plotly.graph_objects as go

from app import theme
from app.components.widgets import figures
from app.components.widgets.curves import Series

_AREAS = ("buffer/num_questions", "buffer/num_retired")
_ALL = "buffer/num_in_data"
KEYS = (*_AREAS, _ALL)


def show(series: Series, key: str) -> None:
    """Show the replay buffer and the retired set as stacked areas over the steps, under the data set's size."""
    figures.show_card(
        "Replay buffer and retired set",
        "questions",
        area(series),
        key,
        "Stacked areas over steps: questions in the replay buffer, questions retired; a line: all questions",
    )


def area(series: Series) -> go.Figure | None:
    """Return the stacked areas, or None without values."""
    if not any(series.get(key) for key in _AREAS):
        return None
    colours = theme.palette()
    figure = figures.new_figure()
    for key, name, colour in zip(_AREAS, ("replay buffer", "retired"), (colours.replay, colours.retired), strict=True):
        figures.add_line(figure, name, series.get(key, []), colour)
    figure.update_traces(stackgroup="all", line={"width": 1})
    if series.get(_ALL):
        figures.add_line(figure, "all questions, |D|", series[_ALL], colours.muted, dash="dot")
    return figure
