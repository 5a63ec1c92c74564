"""The replay buffer over steps: its size, its buckets, ratios of replays, and whether replay narrows training."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import plotly.graph_objects as go
import streamlit as st

from exgrpo.app import theme
from exgrpo.app.components.widgets import chart, curve_view, data_table, figures
from exgrpo.app.components.widgets.curve_view import WHOLE, CurveView
from exgrpo.app.components.widgets.curves import Series
from exgrpo.app.formats import counted, hover
from exgrpo.app.queries.answers import ask
from exgrpo.app.theme import Look
from exgrpo.db.queries import buffer
from exgrpo.db.rows.replays import ConcentrationPoint, DiversityPoint
from exgrpo.db.rows.runs import BucketRow, MetricPoint
from exgrpo.db.rows.spec_fields import bucket_meaning

_AREAS = ("buffer/num_questions", "buffer/num_retired")
_ALL = "buffer/num_in_data"
KEYS = (*_AREAS, _ALL)
_BANDS = ((0, 100, "least to largest", 0.14), (25, 75, "middle half", 0.30))
MAX_COLUMNS = 240
_QUANTITIES = {
    "questions": ("Questions", "questions in the bucket before the step"),
    "draws": ("Draws", "questions drawn from the bucket"),
}


def show_area(series: Series, key: str) -> None:
    """Show the replay buffer and the retired set as stacked areas over the steps, under the data set's size."""
    figures.show_card(
        "Replay buffer and retired set", "questions", area(series), key,
        "Stacked areas: questions in the replay buffer, questions retired; a line: all questions",
    )  # fmt: skip


def area(series: Series) -> go.Figure | None:
    """Return the stacked areas, or None without values."""
    if not any(series.get(key) for key in _AREAS):
        return None
    colours = theme.palette()
    figure = figures.new_figure()
    for key, name, colour in zip(_AREAS, ("replay buffer", "retired"), (colours.replay, colours.retired), strict=True):
        figures.add_line(figure, name, WHOLE.line(series.get(key, [])), Look(colour))
    figure.update_traces(stackgroup="all", line={"width": 1})
    if series.get(_ALL):
        figures.add_line(figure, "all questions, |D|", WHOLE.line(series[_ALL]), Look(colours.muted, "dot"))
    curve_view.dress(figure, WHOLE)
    return figure


def show_ratios(ratios: Mapping[int, Sequence[float]], view: CurveView) -> None:
    """Show the median and two bands of the trajectories' mean ratios over the steps."""
    figures.show_card(
        "Importance ratios by trajectory", "mean π now / π then, logarithmic", bands(ratios, view),
        "curve-ratio-bands",
        "Median, middle half and range of replayed trajectories' mean importance ratios over steps",
    )  # fmt: skip


def bands(ratios: Mapping[int, Sequence[float]], view: CurveView) -> go.Figure | None:
    """Return median, middle half and range; None where nothing was replayed."""
    steps = [step for step, values in ratios.items() if len(values)]
    if not steps:
        return None
    colour = theme.palette().replay
    figure = figures.new_figure()
    x = view.line([MetricPoint(step, 0.0) for step in steps]).x
    for low, high, name, opacity in _BANDS:
        edge = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "legendgroup": name}
        figure.add_trace(go.Scatter(x=x, y=_quantile(ratios, steps, low), name=f"{low}%", showlegend=False, **edge))
        figure.add_trace(
            go.Scatter(
                x=x, y=_quantile(ratios, steps, high), name=name, fill="tonexty",
                fillcolor=figures.faded(colour, opacity), **edge,
            )
        )  # fmt: skip
    figure.add_trace(
        go.Scatter(
            x=x, y=(median := _quantile(ratios, steps, 50)), name="median", line={"color": colour, "width": 2},
            hovertemplate=f"%{{y:{hover(median.tolist())}}}", **figures.visible(median, colour),
        )
    )  # fmt: skip
    curve_view.dress(figure, replace(view, has_log_axis=True))
    return figure


def _quantile(ratios: Mapping[int, Sequence[float]], steps: Sequence[int], percent: int) -> np.ndarray:
    return np.array([np.percentile(ratios[step], percent) for step in steps], dtype=np.float32)


def show_heatmap(run_id: str, algorithm: Mapping[str, Any], num_retired: int) -> None:
    """Show buckets against steps, coloured by size or by draws.

    `num_retired` explains a buffer that never held a question because every solved question retired at once. Files
    have every step, the chart about `MAX_COLUMNS`.
    """
    with st.container(border=True, gap="xxsmall", key="card-heatmap"):
        head = st.container(horizontal=True, wrap=False, vertical_alignment="center")
        head.markdown(
            f"**Buckets** &nbsp; :gray[:small[before each step, by {bucket_meaning(algorithm)}]]", width="stretch"
        )
        chosen = st.segmented_control(
            "Colour by", list(_QUANTITIES), default="questions", format_func=lambda name: _QUANTITIES[name][0],
            required=True, key="buckets", bind="query-params", label_visibility="collapsed", width="content",
        )  # fmt: skip
        figure = heatmap(ask(buffer.bucket_grid, run_id), algorithm["rollouts_per_question"], chosen)
        if figure is not None:
            shown, unit = f"heatmap-{chosen}", _QUANTITIES[chosen][1]
            with head:
                data_table.export(
                    lambda: [asdict(row) for row in ask(buffer.bucket_grid, run_id, None)], "buckets", "heatmap",
                    pictures=lambda: chart.offer_files(shown, f"Buckets: {unit}", unit, "buckets"),
                )  # fmt: skip
        if figure is None:
            st.markdown(f":gray[{_why_empty(num_retired)}]")
        else:
            figures.mark_whole_steps(figure)
            chart.show(figure, shown, f"Heat-map of steps against buckets, coloured by {unit}")


def _why_empty(num_retired: int) -> str:
    if num_retired:
        return f"No bucket held a question: the {num_retired:,} solved in all rollouts are retired, none is left over."
    return "The buffer is empty. Collection begins with the delayed start, when Pass@1 of a batch is high enough."


def heatmap(rows: Sequence[BucketRow], rollouts_per_question: int, quantity: str) -> go.Figure | None:
    """Return the heat-map, or None when no bucket ever held a question."""
    steps = _spread(sorted({row.step for row in rows}), MAX_COLUMNS)
    if not steps or not any(row.num_questions for row in rows):
        return None
    values = {(row.step, row.bucket): row.num_drawn if quantity == "draws" else row.num_questions for row in rows}
    top = max(max(row.bucket for row in rows if row.num_questions), rollouts_per_question - 1)
    buckets = list(range(top + 1))
    colours = theme.palette()
    figure = figures.new_figure(60 + 27 * len(buckets), y={"showgrid": False, "type": "category"}, hovermode="closest")
    figure.add_trace(
        go.Heatmap(
            x=steps, y=[f"{bucket}/{rollouts_per_question}" for bucket in buckets],
            z=np.array([[values.get((step, bucket), 0) for step in steps] for bucket in buckets], dtype=np.int32),
            colorscale=[[0, colours.empty_cell], [1, colours.full_cell]], zmin=0, ygap=2,
            colorbar=figures.colour_bar(_QUANTITIES[quantity][1]),
            hovertemplate=f"step %{{x}}<br>bucket %{{y}}<br>{_QUANTITIES[quantity][1]}: %{{z:,}}<extra></extra>",
        )
    )  # fmt: skip
    return figure


def _spread(steps: list[int], most: int) -> list[int]:
    """Return at most `most` steps, evenly spread, the last one included."""
    if len(steps) <= most:
        return steps
    stride = -(-len(steps) // most)
    return steps[::-1][::stride][::-1]


def show_replays(points: Sequence[ConcentrationPoint]) -> None:
    """Show the share of replays that a tenth of the questions has, next to that of even draws."""
    colours, figure, last = theme.palette(), figures.new_figure(), "none yet"
    figures.show_shares(figure)
    if points:
        end = points[-1]
        last = f"{counted(end.num_replays, 'replay')} of {end.num_replayed:,} of {end.num_questions:,} stored questions"
        top = WHOLE.line([MetricPoint(point.step, point.top_share) for point in points])
        even = WHOLE.line([MetricPoint(point.step, point.even_share) for point in points])
        figures.add_line(figure, "this run", top, Look(colours.replay), is_share=True)
        figures.add_line(figure, "even draws", even, Look(colours.muted, "dot"), is_share=True)
    figures.show_card(
        "Replays on the most replayed tenth", f"share of all replays so far; {last}", figure if points else None,
        "concentration", "Curves: share of replays on the most replayed tenth of stored questions, and of even draws",
        "Above the grey curve, replay returns to the same questions more often than chance would: a sign of premature "
        "convergence if the answers become fewer too.",
    )  # fmt: skip


def show_answers(points: Sequence[DiversityPoint]) -> None:
    """Show how many different answers questions get, fresh and replayed."""
    colours, figure = theme.palette(), figures.new_figure()
    for name, colour in (("fresh", colours.fresh), ("replayed", colours.replay)):
        seen = [(point.step, getattr(point, name)) for point in points if not np.isnan(getattr(point, name))]
        if seen:
            figures.add_line(figure, name, WHOLE.line([MetricPoint(*point) for point in seen]), Look(colour))
    figures.show_card(
        "Different answers", "per question: among K fresh rollouts, or K-1 with a replay",
        figure if figure.data else None, "answer-diversity",
        "Curves: different answers per question, fresh and replayed",
    )  # fmt: skip
