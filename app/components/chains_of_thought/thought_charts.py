"""Charts of chains of thought: histograms of entropy, entropy against perplexity, and curves over steps."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from exgrpo.app import theme
from exgrpo.app.components.widgets import data_table, figures
from exgrpo.app.components.widgets.curve_view import WHOLE, Line
from exgrpo.app.formats import NATS_HOVER
from exgrpo.app.theme import Look, Palette
from exgrpo.db.rows.chains_of_thought import (
    EASY_ABOVE,
    HARD_UP_TO,
    Difficulty,
    EntropyPoint,
    EntropyPoints,
    ShareLine,
)
from exgrpo.db.rows.runs import MetricPoint
from exgrpo.jobs.evaluation.analysis.report import ValidityLine

_NARROW_LEGEND = 3
_NUM_BINS = 40
_DRAWN_PERCENT = 98.0
_SIGNALS = {"mean_entropy": "entropy, nats per token", "perplexity": "perplexity"}


@dataclass(frozen=True, slots=True)
class Group:
    """Some of the points under one name; `colour` picks it from the palette by meaning."""

    name: str
    holds: Callable[[EntropyPoint], bool]
    colour: Callable[[Palette], str]
    dash: str = "solid"


VALIDITY = (
    Group("valid", lambda point: point.is_valid is True, lambda p: p.valid),
    Group("not valid", lambda point: point.is_valid is False, lambda p: p.invalid, "dash"),
)
CODE = (
    Group("without code", lambda point: point.has_code is False, lambda p: p.muted),
    Group("with code", lambda point: point.has_code is True, lambda p: p.with_code, "dash"),
)
CODE_AND_VALIDITY = (
    Group("no code, valid", lambda point: _is(point, has_code=False, is_valid=True), lambda p: p.valid),
    Group("no code, not valid", lambda point: _is(point, has_code=False, is_valid=False), lambda p: p.invalid),
    Group("code, valid", lambda point: _is(point, has_code=True, is_valid=True), lambda p: p.valid, "dash"),
    Group("code, not valid", lambda point: _is(point, has_code=True, is_valid=False), lambda p: p.invalid, "dash"),
)
VALID_BY_DIFFICULTY = (
    Group("easy", lambda point: _is_valid(point, Difficulty.EASY), lambda p: p.easy),
    Group("medium", lambda point: _is_valid(point, Difficulty.MEDIUM), lambda p: p.medium, "dash"),
    Group("hard", lambda point: _is_valid(point, Difficulty.HARD), lambda p: p.hard, "dot"),
)


def _is(point: EntropyPoint, *, has_code: bool, is_valid: bool) -> bool:
    return point.has_code is has_code and point.is_valid is is_valid


def _is_valid(point: EntropyPoint, difficulty: Difficulty) -> bool:
    return point.is_valid is True and point.difficulty is difficulty


def show_sampling(sample: EntropyPoints) -> None:
    """Show which share of the correct answers the charts use, unless they use all."""
    if sample.stride > 1:
        st.caption(f"Charts show one in every {sample.stride:,} correct answers, {len(sample.points):,} in all.")


def densities_of(points: Sequence[EntropyPoint], groups: Sequence[Group], signal: str) -> go.Figure | None:
    """Return a histogram of a signal, `mean_entropy` or `perplexity`, for each group, as densities over the same bins.

    They end above 98% of the values of each group: the largest values may all be of the smallest group. None where no
    group has any.
    """
    samples = {group.name: [getattr(point, signal) for point in points if group.holds(point)] for group in groups}
    drawn = [finite for sample in samples.values() if (finite := np.array(sample)[np.isfinite(sample)]).size]
    if not drawn:
        return None
    low, high = min(map(np.min, drawn)), max(np.percentile(values, _DRAWN_PERCENT) for values in drawn)
    edges = np.linspace(low, max(high, low + max(abs(low), 1) * 1e-9), _NUM_BINS + 1)
    middles = (edges[:-1] + edges[1:]) / 2
    colours = theme.palette()
    y = {"showticklabels": False, "title": figures.axis_title("density")}
    figure = figures.new_figure(x_title=_SIGNALS[signal], x={"hoverformat": NATS_HOVER}, y=y)
    for group in groups:
        sample = samples[group.name]
        heights = np.histogram(sample, edges)[0] / (len(sample) * np.diff(edges)) if sample else np.zeros(0)
        if heights.any():
            line = Line(middles, heights.astype(np.float64))
            figures.add_line(figure, f"{group.name} ({len(sample):,})", line, Look(group.colour(colours), group.dash))
    # Room for a second row of the legend, which plotly leaves to the curves.
    figure.update_layout(showlegend=True, margin={"t": 44 if len(figure.data) > _NARROW_LEGEND else 8})
    return figure


def mean_signals(lines: Sequence[ValidityLine], name: str) -> go.Figure | None:
    """Return the mean of a signal, entropy or perplexity, of valid and invalid chains by difficulty (the paper's)."""
    known = [line for line in lines if line.num_valid or line.num_invalid]
    if not known:
        return None
    colours = theme.palette()
    pairs = {"valid": (f"{name}_valid", colours.valid), "not valid": (f"{name}_invalid", colours.invalid)}
    figure = _pairs(known, pairs)
    for trace, (field, _) in zip(figure.data, pairs.values(), strict=True):
        halves = np.array([line.half_intervals[field] for line in known], np.float32)
        trace.error_y = {"type": "data", "array": halves, "color": colours.text, "thickness": 1}
    if name == "perplexity":  # exp of a number that is not negative: 1 is its zero
        fields = ("perplexity_valid", "perplexity_invalid")
        ends = [(getattr(line, field), line.half_intervals[field]) for line in known for field in fields]
        most = max([1.0, *(value + (half if half > 0 else 0.0) for value, half in ends if value > 0)])
        figure.update_yaxes(range=[1.0, 1.0 + 1.1 * (most - 1.0)], rangemode="normal")
    return figure


def _pairs(lines: Sequence[ValidityLine], pairs: Mapping[str, tuple[str, str]]) -> go.Figure:
    """Return two bars by group of questions, the second hatched, each of a field and in a colour."""
    figure = figures.new_figure(
        x_title="questions", x={"type": "category"}, hovermode="closest", bargap=0.35, showlegend=True
    )
    for (name, (field, colour)), pattern in zip(pairs.items(), ("", "/"), strict=True):
        values = np.array([getattr(line, field) for line in lines], np.float32)
        trace = figures.bars([line.group for line in lines], values, name, colour, f"%{{y:{NATS_HOVER}}}")
        figure.add_trace(trace.update(marker={"pattern": {"shape": pattern, "size": 5}}))
    return figure


def shares(lines: Sequence[ShareLine], window: int = 1) -> go.Figure | None:
    """Return the shares of rollouts, successes, buffer and replays over steps, each the mean of the last `window`."""
    colours = theme.palette()
    curves = (
        ("rollouts", colours.fresh, "solid"), ("successes", colours.fresh, "dot"), ("buffer", colours.replay, "dash"),
        ("replays", colours.replay, "solid"),
    )  # fmt: skip
    figure = figures.new_figure(300, showlegend=True)
    for name, colour, dash in curves:
        known = [(line.step, value) for line in lines if (value := getattr(line, name)) is not None]
        points = _running_mean(known, window)
        if points:
            figures.add_line(figure, name, WHOLE.line(points), Look(colour, dash), is_share=True)
    if not figure.data:
        return None
    figures.show_shares(figure)
    return figure


def _running_mean(points: Sequence[tuple[int, float]], window: int) -> list[MetricPoint]:
    """Return the mean of each value and those of the steps up to `window` - 1 before it."""
    means, start, total = [], 0, 0.0
    for index, (step, value) in enumerate(points):
        total += value
        while points[start][0] <= step - window:
            total -= points[start][1]
            start += 1
        means.append(MetricPoint(step, total / (index - start + 1)))
    return means


_AREA, _MEAN = "%.2f", "mean"
_FIELDS = {
    "Valid": ("num_valid", "localized"),
    "Not valid": ("num_invalid", "localized"),
    "Entropy, valid": ("entropy_valid", _MEAN),
    "Entropy, not valid": ("entropy_invalid", _MEAN),
    "Entropy AUC": ("entropy_auc", _AREA),
    "Perplexity, valid": ("perplexity_valid", _MEAN),
    "Perplexity, not valid": ("perplexity_invalid", _MEAN),
    "Perplexity AUC": ("perplexity_auc", _AREA),
}
"""The field of `ValidityLine` and the format of each column."""


def show_validity(lines: Sequence[ValidityLine]) -> None:
    """Show one row for each group of questions; a value that cannot be computed is left empty."""
    fields = {
        name: [_TEXTS[text](line, field) if text in _TEXTS else getattr(line, field) for line in lines]
        for name, (field, text) in _FIELDS.items()
    }
    data_table.show_card(
        "Valid against not valid chains", pd.DataFrame({"Questions": [line.group for line in lines], **fields}),
        "entropy-validity-table",
        "Entropy and perplexity of valid and invalid chains with the AUC of each, by difficulty",
        {name: st.column_config.NumberColumn(format=text) for name, (_, text) in _FIELDS.items() if text not in _TEXTS},
        f"Correct answers with a verdict. A question is hard in a step if up to {HARD_UP_TO:.0%} of its rollouts are "
        f"correct, medium up to {EASY_ABOVE:.0%}, else easy; if all are correct, it counts in the last row only. "
        "Intervals of means are of 95%. An AUC is the chance that a chain that is not valid "
        "scores higher than a valid one: 1 = perfect separation.",
    )  # fmt: skip


def _mean(line: ValidityLine, field: str) -> str:
    value, half = float(getattr(line, field)), line.half_intervals[field]
    if math.isnan(value):
        return ""
    return f"{value:z.4f}" if math.isnan(half) else f"{value:z.4f} ± {half:.4f}"


_TEXTS = {_MEAN: _mean}
