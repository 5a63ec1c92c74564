"""Bars by backbone and training variant: the paper's printed averages, and the user's models beside them."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import plotly.graph_objects as go
import streamlit as st

from app import theme
from app.components.benchmarks.score_table import ScoreLine, printed_lines
from app.components.widgets import figures
from app.formats import escape_control_characters

HEIGHT = 320
STUDIES = ("main-table", "model-extension")
VARIANTS = ("Base or Instruct", "On-Policy", "ExGRPO")
_TITLES = {"ID Avg.": "In distribution", "OOD Avg.": "Out of distribution"}


@dataclass(frozen=True, slots=True)
class Backbone:
    """One backbone of the paper: its title, the keys of its three printed lines, and the hub names of its models."""

    title: str
    lines: tuple[str, str, str]
    names: tuple[str, ...]


def _extension(group: str, start: str, *names: str) -> Backbone:
    rows = (start, "On-Policy", "ExGRPO")
    first, second, third = (f"model-extension:{group}:{row}" for row in rows)
    return Backbone(group, (first, second, third), names)


BACKBONES = (
    Backbone(
        "Qwen2.5-Math 7B",
        (
            "main-table::Qwen-Base",
            "main-table:Zero RLVR with ExGRPO:On-Policy",
            "main-table:Zero RLVR with ExGRPO:ExGRPO",
        ),
        ("Elliott/Qwen2.5-Math-7B-16k-think", "Qwen/Qwen2.5-Math-7B"),
    ),
    _extension(
        "Qwen2.5-Math 1.5B", "Base", "RoadQAQ/Qwen2.5-Math-1.5B-16k-think", "Qwen/Qwen2.5-Math-1.5B"
    ),
    _extension("Qwen2.5-7B Instruct", "Instruct", "Qwen/Qwen2.5-7B-Instruct"),
    _extension("Llama3.1-8B", "Base", "meta-llama/Llama-3.1-8B"),
    _extension("Llama3.1-8B Instruct", "Instruct", "meta-llama/Llama-3.1-8B-Instruct"),
)  # fmt: skip


def show(measured_lines: Sequence[ScoreLine]) -> None:
    """Show the averages in and out of distribution as two cards."""
    for column, container in zip(_TITLES, st.columns(2, gap="small"), strict=True):
        with container:
            figures.show_card(
                _TITLES[column], "average, percent correct; diamonds: your models", figure(column, measured_lines),
                f"backbones-{column.split()[0].lower()}",
                f"Bars by backbone: {_TITLES[column].lower()} average of base, on-policy and ExGRPO",
            )  # fmt: skip


def figure(column: str, measured_lines: Sequence[ScoreLine]) -> go.Figure:
    """Return printed bars for each backbone and variant, and a diamond for each scored model of the user."""
    colours = theme.palette()
    printed = {line.key: line for line in printed_lines(STUDIES)}
    drawn = figures.new_figure(HEIGHT)
    variants = zip(VARIANTS, (colours.muted, colours.fresh, colours.replay), strict=True)
    for index, (variant, colour) in enumerate(variants):
        scores = [printed[backbone.lines[index]].scores[column] for backbone in BACKBONES]
        drawn.add_trace(
            go.Bar(
                x=[backbone.title for backbone in BACKBONES], y=[score.value for score in scores], name=variant,
                text=[score.text for score in scores], textposition="outside", textfont={"size": 10}, cliponaxis=False,
                marker={"color": colour, "cornerradius": 2}, hovertemplate="%{x}: %{y:.1f}",
            )
        )  # fmt: skip
    scored = [(backbone_of(line), line) for line in measured_lines if column in line.scores]
    points = [(backbone.title, line) for backbone, line in scored if backbone is not None]
    if points:
        drawn.add_trace(
            go.Scatter(
                x=[title for title, _ in points], y=[line.scores[column].value for _, line in points], mode="markers",
                name="your models", customdata=[escape(escape_control_characters(line.name)) for _, line in points],
                marker={"color": colours.held_out, "size": 11, "symbol": "diamond", "line": {"width": 1}},
                hovertemplate="%{customdata}: %{y:.1f}",
            )
        )  # fmt: skip
    drawn.update_layout(hovermode="closest", bargap=0.22, bargroupgap=0.06, barmode="group")
    drawn.update_xaxes(title={"text": ""}, type="category")
    return drawn


def backbone_of(line: ScoreLine) -> Backbone | None:
    """Return the paper's backbone that a model was trained from, or is."""
    for backbone in BACKBONES:
        if line.group in backbone.names or line.name in backbone.names:
            return backbone
    return None
