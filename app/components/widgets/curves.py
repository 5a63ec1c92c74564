"""A run's curves, grouped as in the paper."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import plotly.graph_objects as go

from app import theme
from app.components.widgets import curve_view, figures
from app.components.widgets.curve_view import Drawing
from app.theme import Look, Palette
from db.rows.display_names import BATCH_PASS_RATE, FRESH_PASS_RATE, held_out_score
from db.rows.runs import EvaluationRow, MetricPoint
from db.statistics.intervals import half_interval_95

Series = dict[str, list[MetricPoint]]


@dataclass(frozen=True, slots=True)
class MetricCurve:
    """One metric in a chart; `colour` picks it from the palette by meaning."""

    key: str
    name: str
    colour: Callable[[Palette], str]
    dash: str = "solid"


@dataclass(frozen=True, slots=True)
class Chart:
    """Curves of one unit on one pair of axes."""

    title: str
    unit: str
    curves: tuple[MetricCurve, ...]
    has_log_axis: bool = False
    is_stacked: bool = False
    starts_at_zero: bool = True
    is_share: bool = False
    explanation: str = ""
    """What the curves mean, where their names cannot say it."""
    is_hidden_if_empty: bool = False
    """Whether a live run hides it until it has values, since most runs never have any."""


BOUNDS = {
    "A": "bounds the variance of a mixed group's gradient, however its members depend on each other.",
    "A'": "is A with every weight W replaced by the largest, M: what low-entropy selection keeps small.",
    "B": "bounds it where a group's gradients are uncorrelated with each other, as for large K.",
    "B'": "is B with every weight W replaced by the largest, M.",
}
"""What each of the paper's bounds says (Proposition "Variance upper bound")."""
PASS_RATES = Chart(
    "Scores",
    "share; held out with 95% interval",
    (
        MetricCurve("reward/pass_at_k", "Batch Pass@K", lambda p: p.muted, "dot"),
        MetricCurve("reward/pass_at_1", BATCH_PASS_RATE, lambda p: p.fresh),
        MetricCurve("reward/pass_at_1_fresh", FRESH_PASS_RATE, lambda p: p.fresh, "dash"),
        MetricCurve("reward/pass_at_1_replayed", "Pass@1 of replayed questions", lambda p: p.replay, "dash"),
    ),
    is_share=True,
    explanation="**Batch Pass@1** mixes fresh questions with replayed ones, which were selected: compare methods by "
    "fresh questions or held-out scores.",
)
EVER_SOLVED = Chart(
    "Questions ever solved",
    "share of the data set",
    (MetricCurve("buffer/ever_solved_share", "in buffer or retired set", lambda p: p.replay),),
    is_share=True,
    explanation="Questions of the replay buffer and the retired set over all questions of the data set, |D|. "
    "The paper ends at about half.",
)
QUESTIONS_LEFT = Chart(
    "Questions left in a mini-batch",
    "questions",
    (
        MetricCurve("batch/questions_left", "mean of the step's mini-batches", lambda p: p.fresh),
        MetricCurve("batch/questions_left_min", "fewest", lambda p: p.warning, "dot"),
    ),
    explanation="Questions with a policy gradient: masked GRPO leaves them in, and their rollouts differ in reward.",
)
GRADIENT_WEIGHTS = Chart(
    "Gradient weight of replayed tokens",
    "f'(w) w; a fresh token's is 1",
    (
        MetricCurve("replay/gradient_weight_p90", "90% quantile", lambda p: p.muted, "dot"),
        MetricCurve("replay/gradient_weight_mean", "mean", lambda p: p.replay),
        MetricCurve("replay/gradient_weight_median", "median", lambda p: p.replay, "dash"),
        MetricCurve("replay/gradient_weight_p10", "10% quantile", lambda p: p.muted, "dot"),
        MetricCurve("replay/gradient_weight_young", "younger half", lambda p: p.fresh),
        MetricCurve("replay/gradient_weight_old", "older half", lambda p: p.warning),
    ),
    explanation="How much the update learns from a replayed token. Shaping gives a token that is as likely as when it "
    "was written β / (1 + β)², a twelfth of a fresh token's weight at β = .1, and none more than a quarter.",
)
TRAJECTORY_WEIGHTS = Chart(
    "Weights of whole replayed trajectories",
    "product of the token ratios, logarithmic",
    (
        MetricCurve("variance/weight_max", "M: largest W", lambda p: p.warning, "dot"),
        MetricCurve("variance/weight_mean", "E[W]", lambda p: p.replay),
        MetricCurve("variance/shaped_weight_mean", "E[f(W)]", lambda p: p.retired),
    ),
    has_log_axis=True,
    explanation="**M** bounds every weight W (assumption A3). \n\n**E[W]** would be 1 over all that the past policy "
    "writes. \n\n**E[f(W)]** is below 1: its distance from 1 is the bias that shaping brings for less variance.",
)
VARIANCE_BOUNDS = Chart(
    "Variance bounds of replayed gradients",
    "squared gradient of sampled logits, logarithmic",
    (
        MetricCurve("variance/bound_general_loose", "A'", lambda p: p.warning, "dot"),
        MetricCurve("variance/bound_general", "A", lambda p: p.warning),
        MetricCurve("variance/bound_independent_loose", "B'", lambda p: p.fresh, "dot"),
        MetricCurve("variance/bound_independent", "B", lambda p: p.fresh),
    ),
    has_log_axis=True,
    explanation=" \n\n".join(f"**{name}** {text}" for name, text in BOUNDS.items())
    + " \n\nThey are 0, below the axis, where the rewards of each replayed group are equal.",
)
BUFFER_GROUP, RATIO_GROUP = "Replay buffer and retired set", "Importance ratios"
REPLAY_GROUPS = frozenset({BUFFER_GROUP, RATIO_GROUP})
"""Groups that are empty for a run without replay."""
GROUPS: dict[str, tuple[Chart, ...]] = {
    "Entropy and response length": (
        Chart(
            "Entropy",
            "nats per token",
            (
                MetricCurve("policy/entropy", "fresh rollouts", lambda p: p.fresh),
                MetricCurve("replay/entropy_chosen", "replayed: chosen", lambda p: p.replay),
                MetricCurve("replay/entropy_rejected", "candidates not chosen", lambda p: p.muted, "dot"),
            ),
        ),
        Chart(
            "Response length",
            "tokens",
            (
                MetricCurve("response/max_tokens", "longest", lambda p: p.warning, "dot"),
                MetricCurve("response/mean_tokens", "mean of fresh rollouts", lambda p: p.fresh),
            ),
        ),
        Chart(
            "Parts of the reward",
            "mean of fresh rollouts, before the weights",
            (
                MetricCurve("reward/answer", "answer", lambda p: p.fresh),
                MetricCurve("reward/format", "format", lambda p: p.replay),
                MetricCurve("reward/random", "random", lambda p: p.muted),
                MetricCurve("reward/code_1", "first code", lambda p: p.held_out),
                MetricCurve("reward/code_2", "second code", lambda p: p.retired),
                MetricCurve("reward/code_3", "third code", lambda p: p.with_code),
                MetricCurve("reward/failed", "failed calls of code, a share", lambda p: p.warning, "dot"),
            ),
            is_hidden_if_empty=True,
        ),
    ),
    BUFFER_GROUP: (
        Chart(
            "Replay",
            "trajectories per step",
            (
                MetricCurve("replay/num_replayed", "replayed", lambda p: p.replay),
                MetricCurve("replay/shortfall", "replay shortfall", lambda p: p.warning, "dot"),
                MetricCurve("experience/num_inserted", "added to the buffer", lambda p: p.muted),
            ),
        ),
        Chart(
            "Age of replayed trajectories",
            "steps",
            (
                MetricCurve("replay/age_max", "oldest", lambda p: p.warning, "dot"),
                MetricCurve("replay/age_mean", "mean", lambda p: p.replay),
            ),
        ),
        Chart(
            "Stored trajectories",
            "trajectories of buffered questions",
            (
                MetricCurve("buffer/num_trajectories", "stored", lambda p: p.replay),
                MetricCurve("replay/num_candidates", "candidates scored in the step", lambda p: p.muted, "dot"),
            ),
        ),
        EVER_SOLVED,
    ),
    RATIO_GROUP: (
        Chart(
            "Importance ratio of replayed tokens",
            "π now / π then, logarithmic",
            (
                MetricCurve("ratio/replayed_max", "largest", lambda p: p.warning, "dot"),
                MetricCurve("ratio/replayed_mean", "mean", lambda p: p.replay),
                MetricCurve("ratio/shaped_mean", "mean of f(w)", lambda p: p.retired),
            ),
            has_log_axis=True,
        ),
        Chart(
            "Effective sample size",
            "share of replayed tokens",
            (MetricCurve("ratio/replayed_ess", "effective sample size", lambda p: p.replay),),
            is_share=True,
        ),
        GRADIENT_WEIGHTS,
        TRAJECTORY_WEIGHTS,
        VARIANCE_BOUNDS,
        Chart(
            "Importance ratio of fresh tokens",
            "π now / π at rollout, logarithmic",
            (
                MetricCurve("ratio/fresh_max", "largest", lambda p: p.warning, "dot"),
                MetricCurve("ratio/fresh_mean", "mean", lambda p: p.fresh),
            ),
            has_log_axis=True,
        ),
        Chart(
            "Sampler against trainer",
            "|log-prob of the sampler - of the trainer|, nats, logarithmic",
            (
                MetricCurve("generator/log_prob_gap_max", "largest", lambda p: p.warning, "dot"),
                MetricCurve("generator/log_prob_gap", "mean", lambda p: p.fresh),
            ),
            has_log_axis=True,
        ),
        Chart(
            "Correction for the sampler",
            "of fresh tokens",
            (
                MetricCurve("generator/weight_mean", "mean weight", lambda p: p.fresh),
                MetricCurve("generator/limited_share", "share limited", lambda p: p.warning, "dot"),
            ),
        ),
    ),
    "Gradient and loss": (
        QUESTIONS_LEFT,
        Chart(
            "Gradient norm",
            "before clipping",
            (MetricCurve("optim/gradient_norm", "gradient norm", lambda p: p.fresh),),
        ),
        Chart(
            "Loss",
            "policy term and total",
            (
                MetricCurve("loss/policy", "policy term", lambda p: p.fresh),
                MetricCurve("loss/total", "total", lambda p: p.muted, "dot"),
                MetricCurve("loss/sft", "of demonstrations (SFT)", lambda p: p.fresh),
            ),
            starts_at_zero=False,
        ),
        Chart(
            "Clipped fresh tokens",
            "share of fresh tokens",
            (MetricCurve("ratio/clip_share", "clipped", lambda p: p.fresh),),
            is_share=True,
        ),
        Chart(
            "Skipped mini-batches",
            "loss or gradient not finite, per step",
            (MetricCurve("optim/num_skipped", "skipped", lambda p: p.warning),),
        ),
        Chart(
            "Updated tokens",
            "response tokens in the backward pass, per step",
            (MetricCurve("optim/num_updated_tokens", "updated", lambda p: p.fresh),),
        ),
    ),
    "Timing": (
        Chart(
            "Time by phase",
            "seconds per step",
            (
                MetricCurve("seconds/rollout", "rollout and grading", lambda p: p.fresh),
                MetricCurve("seconds/score", "scoring candidates", lambda p: p.replay),
                MetricCurve("seconds/update", "update", lambda p: p.held_out),
                MetricCurve("seconds/other", "everything else", lambda p: p.muted),
            ),
            is_stacked=True,
        ),
        Chart(
            "Generated tokens", "tokens per step", (MetricCurve("tokens/generated", "generated", lambda p: p.fresh),)
        ),
    ),
}
"""Charts as the paper groups them, after the scores."""
CHARTS = tuple(chart for charts in GROUPS.values() for chart in charts)
KEYS = tuple(curve.key for chart in (PASS_RATES, *CHARTS) for curve in chart.curves)
"""Every metric that these charts need, to be read at once."""


def figure_of(chart: Chart, series: Series, drawing: Drawing | None = None) -> go.Figure | None:
    """Return the chart with the series that have values, or None if none has."""
    drawn = [curve for curve in chart.curves if series.get(curve.key)]
    if not drawn:
        return None
    drawing = drawing or Drawing()
    view = replace(drawing.view, smoothing=0.0, has_log_axis=False) if chart.is_stacked else drawing.view
    colours = theme.palette()
    figure = figures.new_figure()
    for curve in drawn:
        look = Look(curve.colour(colours), curve.dash)
        figures.add_line(figure, curve.name, drawing.line(series[curve.key]), look, view, is_share=chart.is_share)
    if chart.is_stacked:
        figure.update_traces(stackgroup="all", line={"width": 0.5})
    if chart.is_share:
        figures.show_shares(figure)
    if not chart.starts_at_zero:
        figure.update_yaxes(rangemode="normal")
    curve_view.dress(figure, replace(view, has_log_axis=view.has_log_axis or chart.has_log_axis), drawing.span)
    return figure


def pass_rates(
    series: Series,
    evaluations: Sequence[EvaluationRow],
    drawing: Drawing | None = None,
    titles: Mapping[str, str] = MappingProxyType({}),
) -> go.Figure | None:
    """Return the scores of training batches, of held-out questions and of benchmarks, these with their intervals.

    `titles` are those of benchmarks that have another than their name.
    """
    drawing = drawing or Drawing()
    figure = figure_of(PASS_RATES, series, drawing)
    colours = theme.palette()
    palette = itertools.cycle((colours.replay, colours.retired, colours.medium, colours.warning, colours.muted))
    for name in dict.fromkeys(row.question_set for row in evaluations if row.question_set != "training"):
        rows = [row for row in evaluations if row.question_set == name]
        if figure is None:
            figure = figures.new_figure()
            figures.show_shares(figure)
            curve_view.dress(figure, drawing.view, drawing.span)
        is_held_out = name == "held_out"
        score = held_out_score(rows[-1].samples_per_question)
        colour = colours.held_out if is_held_out else next(palette)
        figure.add_trace(
            go.Scatter(
                x=drawing.line([MetricPoint(row.step, row.avg_at_n) for row in rows]).x,
                y=[row.avg_at_n for row in rows],
                error_y={"array": [half_interval_95(row.standard_error) for row in rows], "thickness": 1, "width": 3},
                name=score if is_held_out else f"{titles.get(name, name)} Avg@{rows[-1].samples_per_question}",
                mode="lines+markers",
                line={"color": colour, "width": 1.5},
                marker={"color": colour, "size": 7, "symbol": "diamond"},
                hovertemplate="%{y:.1%}",
            )
        )
    return figure


def card(chart: Chart, figure: go.Figure | None, key: str) -> None:
    """Show a chart's figure in its frame."""
    slug = chart.title.lower().replace(" ", "-")
    names = ", ".join(curve.name for curve in chart.curves)
    alt = f"{chart.title}: {names}"
    figures.show_card(chart.title, chart.unit, figure, f"{key}-{slug}", alt, chart.explanation or None)
