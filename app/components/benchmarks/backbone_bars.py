"""Bars by backbone and training variant: the paper's printed averages, and the user's models next to them."""

from collections.abc import Sequence
from html import escape

import plotly.graph_objects as go

from exgrpo.app import theme
from exgrpo.app.components.benchmarks.score_table import ScoreLine, printed_lines
from exgrpo.app.components.widgets import figures
from exgrpo.app.formats import escape_control_characters

HEIGHT = 320
STUDIES = ("main-table", "model-extension")
VARIANTS = ("Base or Instruct", "On-Policy", "ExGRPO")
_TITLES = {"ID Avg.": "In distribution", "OOD Avg.": "Out of distribution"}


_MAIN, _OTHERS = "main-table:", "model-extension:"
BACKBONES: dict[str, tuple[str, tuple[str, str, str], tuple[str, ...]]] = {
    "Qwen2.5-Math 7B": (
        _MAIN, (":Qwen-Base", "Zero RLVR with ExGRPO:On-Policy", "Zero RLVR with ExGRPO:ExGRPO"),
        ("Elliott/Qwen2.5-Math-7B-16k-think", "Qwen/Qwen2.5-Math-7B"),
    ),
} | {
    title: (_OTHERS, (f"{title}:{start}", f"{title}:On-Policy", f"{title}:ExGRPO"), names)
    for title, start, names in (
        ("Qwen2.5-Math 1.5B", "Base", ("RoadQAQ/Qwen2.5-Math-1.5B-16k-think", "Qwen/Qwen2.5-Math-1.5B")),
        ("Qwen2.5-7B Instruct", "Instruct", ("Qwen/Qwen2.5-7B-Instruct",)),
        ("Llama3.1-8B", "Base", ("meta-llama/Llama-3.1-8B",)),
        ("Llama3.1-8B Instruct", "Instruct", ("meta-llama/Llama-3.1-8B-Instruct",)),
    )
}  # fmt: skip
"""By title the study, the keys in it of the backbone's three printed lines, and the hub names of its models."""


def show(measured_lines: Sequence[ScoreLine]) -> None:
    """Show the averages in and out of distribution as two cards."""
    with figures.grid("backbones"):
        for column, title in _TITLES.items():
            figures.show_card(
                title, "average, percent correct; diamonds: your models", figure(column, measured_lines),
                f"backbones-{column.split()[0].lower()}",
                f"Bars by backbone: {_TITLES[column].lower()} average of base, on-policy and ExGRPO",
            )  # fmt: skip


def figure(column: str, measured_lines: Sequence[ScoreLine]) -> go.Figure:
    """Return printed bars for each backbone and variant, and a diamond for each scored model of the user."""
    colours = theme.palette()
    printed = {line.key: line for line in printed_lines(STUDIES)}
    drawn = figures.new_figure(
        HEIGHT, "", x={"type": "category"}, hovermode="closest", bargap=0.22, bargroupgap=0.06, barmode="group"
    )
    variants = zip(VARIANTS, (colours.muted, colours.fresh, colours.replay), strict=True)
    for index, (variant, colour) in enumerate(variants):
        scores = [printed[study + keys[index]].scores[column] for study, keys, _ in BACKBONES.values()]
        drawn.add_trace(
            go.Bar(
                x=list(BACKBONES), y=[score.value for score in scores], name=variant,
                text=[score.text for score in scores], textposition="outside", textfont={"size": 10}, cliponaxis=False,
                marker={"color": colour, "cornerradius": 2}, hovertemplate="%{x}: %{y:.1f}",
            )
        )  # fmt: skip
    scored = [line for line in measured_lines if column in line.scores]
    points = [
        (title, line)
        for line in scored
        for title, (_, _, names) in BACKBONES.items()
        if line.group in names or line.name in names
    ]
    if points:
        drawn.add_trace(
            go.Scatter(
                x=[title for title, _ in points], y=[line.scores[column].value for _, line in points], mode="markers",
                name="your models", customdata=[escape(escape_control_characters(line.name)) for _, line in points],
                marker={"color": colours.held_out, "size": 11, "symbol": "diamond", "line": {"width": 1}},
                hovertemplate="%{customdata}: %{y:.1f}",
            )
        )  # fmt: skip
    return drawn
