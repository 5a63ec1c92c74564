"""Scores over the number of answers k, a card for each way to choose one of them, a curve for each model."""

import math
from collections.abc import Mapping, Sequence
from html import escape

import numpy as np
import plotly.graph_objects as go
import streamlit as st

from exgrpo.app import settings, theme
from exgrpo.app.components.benchmarks.score_table import ScoreLine, column_of
from exgrpo.app.components.widgets import address_choice, figures, notice
from exgrpo.app.components.widgets.curve_view import INTERVAL, Line
from exgrpo.app.formats import escape_control_characters, literal
from exgrpo.app.queries.answers import kept
from exgrpo.app.theme import Look
from exgrpo.db.rows.chains_of_thought import ALL, EASY_ABOVE, HARD_UP_TO, Difficulty
from exgrpo.jobs.evaluation.analysis import score_curves as evaluated
from exgrpo.jobs.evaluation.analysis.score_curves import MEASURES, ScoreCurve

MAX_MODELS = 4
EXPLANATION = (
    "Means over all draws of k of the recorded answers. Bands are 95% intervals over questions: they "
    "cover other questions and other samples of this checkpoint, not another training run."
)
BY_DIFFICULTY = (
    f"Difficulty is the mean share of correct answers of the chosen models: easy above {EASY_ABOVE:.0%}, hard up to "
    f"{HARD_UP_TO:.0%}. With few answers to a question chance moves it between groups."
)
_LEAST_MARGIN = 0.02


def show(lines: Sequence[ScoreLine], scheme: str) -> None:
    """Show the choice of benchmark, models and questions, and the curves; answers are read when the toggle is on."""
    if not st.toggle("Read the recorded answers", key="curves", bind="query-params"):
        return
    benchmarks = {name: column_of(name) for line in lines for name, _ in line.scored}
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        benchmark = address_choice.select("Benchmark", benchmarks, "of", next(iter(benchmarks)), width=240)
        names = {line.key: f"{line.name} ({line.group})" for line in lines if benchmark in dict(line.scored)}
        chosen = address_choice.select_several("Models", names, "over", list(names)[:1], "None")[:MAX_MODELS]
        difficulty = st.segmented_control(
            "Questions", [ALL, *Difficulty], default=ALL, required=True, key="difficulty", bind="query-params",
            help=BY_DIFFICULTY,
        )  # fmt: skip
    drawn = [line for line in lines if line.key in chosen and benchmark in dict(line.scored)]
    runs = {names[line.key]: dict(line.scored)[benchmark] for line in drawn}
    if not runs:
        return
    curves = _curves_of(runs, benchmark, scheme, difficulty)
    colour_of = {names[line.key]: theme.look_of_run(index).colour for index, line in enumerate(drawn)}
    if len(colour_of) > 1:
        _legend(colour_of)
    axis_range = _axis_range([curve for of_model in curves.values() for curve in of_model])
    with figures.grid("over-answers"):
        for measure, meaning in MEASURES.items():
            of_measure = {
                name: curve for name, of_model in curves.items() for curve in of_model if curve.measure == measure
            }
            figures.show_card(
                measure, "share of questions, for k answers", figure(of_measure, colour_of, axis_range),
                f"curve-{measure}", f"{measure} over k by model", f"The share of questions for which {meaning}.",
            )  # fmt: skip
    st.caption(EXPLANATION)
    _show_gaps(runs, curves, benchmark)


def _curves_of(runs: Mapping[str, str], benchmark: str, scheme: str, difficulty: str) -> dict[str, list[ScoreCurve]]:
    root = settings.runs_root()
    with st.spinner("Reading answers", show_time=False):
        if difficulty == ALL:
            read = evaluated.score_curves
            return {name: kept(read, root, run_id, benchmark, scheme) for name, run_id in runs.items()}
        run_ids = tuple(runs.values())
        groups = kept(evaluated.score_curves_by_difficulty, root, run_ids, benchmark, scheme)
    counts = ", ".join(f"{count:,} {group}" for group, (count, _) in groups.items())
    st.caption(f"{counts}. {BY_DIFFICULTY}")
    return dict(zip(runs, groups[Difficulty(difficulty)][1], strict=True))


def _show_gaps(runs: Mapping[str, str], curves: Mapping[str, Sequence[ScoreCurve]], benchmark: str) -> None:
    without = [name for name, of_model in curves.items() if any(not curve.values for curve in of_model)]
    if without:
        st.text(escape_control_characters(f"Log-probs of answers are not recorded: {', '.join(without)}"))
    damage = [
        fault for run_id in runs.values() for fault in evaluated.answer_damage(settings.runs_root(), run_id, benchmark)
    ]
    if damage:
        notice.show("warning", "Recorded answers are damaged", "\n".join(damage))
    gone = [name for name, of_model in curves.items() if not of_model]
    if gone:
        st.text(escape_control_characters(f"No answers to such questions are recorded: {', '.join(gone)}"))


def _legend(colour_of: Mapping[str, str]) -> None:
    """Show each model after a piece of its curve, for all cards."""
    rules = []
    with st.container(horizontal=True, gap="small", key="answers-legend"):
        for index, (name, colour) in enumerate(colour_of.items()):
            with st.container(width="content", key=f"answers-legend-{index}"):
                st.caption(literal(name), width="content")
            piece = f"content:'';display:inline-block;vertical-align:middle;width:1.6rem;border-top:3px solid {colour}"
            rules.append(f".st-key-answers-legend-{index} p::before{{{piece};margin-right:.4rem}}")
        st.html(f"<style>{''.join(rules)}</style>")


def _axis_range(curves: Sequence[ScoreCurve]) -> tuple[float, float]:
    """Return the range of the y axis of all cards, so that curves can be compared between them."""
    shares = [
        share for curve in curves for share in (*curve.values, *curve.low, *curve.high) if math.isfinite(share)
    ] or [0.0, 1.0]
    low, high = min(shares), max(shares)
    margin = max(_LEAST_MARGIN, (high - low) / 20)
    return max(0.0, low - margin), min(1 + _LEAST_MARGIN, high + margin)


def figure(
    curves: Mapping[str, ScoreCurve], colour_of: Mapping[str, str], axis_range: tuple[float, float]
) -> go.Figure | None:
    """Return one curve a model with its band, None where no model has recorded values."""
    recorded = {name: curve for name, curve in curves.items() if curve.values}
    if not recorded:
        return None
    drawn = figures.new_figure(x_title="k", y={"range": axis_range}, showlegend=False)
    for name, curve in recorded.items():
        y, low, high = (np.array(shares, dtype=np.float64) for shares in (curve.values, curve.low, curve.high))
        line = Line(np.arange(1, len(curve.values) + 1, dtype=np.float64), y, low, high, INTERVAL)
        label = escape(escape_control_characters(name))
        figures.add_line(drawn, label, line, Look(colour_of[name]), is_share=True)
    figures.show_shares(drawn)
    return drawn
