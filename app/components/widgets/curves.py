"""A run's curves, grouped as in the paper."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import plotly.graph_objects as go

from exgrpo.app import theme
from exgrpo.app.components.widgets import curve_view, figures
from exgrpo.app.components.widgets.curve_view import WHOLE, CurveView
from exgrpo.app.theme import Look
from exgrpo.db.rows.display_names import BATCH_PASS_RATE, FRESH_PASS_RATE, held_out_score
from exgrpo.db.rows.runs import EvaluationRow, MetricPoint

Series = dict[str, list[MetricPoint]]


@dataclass(frozen=True, slots=True)
class Curve:
    """One metric in a chart, in a colour of the palette by its name."""

    key: str
    name: str = ""
    colour: str = "fresh"
    dash: str = "solid"

    @property
    def look(self) -> Look:
        """Its colour in the reader's theme, and its dashes."""
        return Look(getattr(theme.palette(), self.colour), self.dash)


@dataclass(frozen=True, slots=True)
class Chart:
    """Curves of one unit on one pair of axes."""

    title: str
    unit: str
    curves: tuple[Curve, ...]
    explanation: str = ""
    """What the curves mean, where their names cannot say it."""
    has_log_axis: bool = False
    is_stacked: bool = False
    starts_at_zero: bool = True
    is_share: bool = False
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
    "Scores", "share; held out with 95% interval",
    (
        Curve("reward/pass_at_k", "Batch Pass@K", "muted", "dot"),
        Curve("reward/pass_at_1", BATCH_PASS_RATE),
        Curve("reward/pass_at_1_fresh", FRESH_PASS_RATE, "text", "dash"),
        Curve("reward/pass_at_1_replayed", "Replayed Pass@1", "replay", "dash"),
    ),
    "**Batch Pass@1** mixes fresh questions with replayed ones, which were selected: compare methods by **Fresh "
    "Pass@1** or held-out scores. **Batch Pass@K** counts the replays themselves, too.",
    is_share=True,
)  # fmt: skip
EVER_SOLVED = Chart(
    "Questions stored or retired", "share of the data set",
    (Curve("buffer/ever_solved_share", "in buffer or retired set", "replay"),),
    "Questions of the replay buffer and the retired set over all questions of the data set, |D|: those solved since "
    "the delayed start. The paper ends at about half.",
    is_share=True,
)  # fmt: skip
TRAJECTORY_WEIGHTS = Chart(
    "Weights of whole replayed trajectories", "product of the token ratios, logarithmic",
    (
        Curve("variance/weight_max", "M: largest W", "warning", "dot"),
        Curve("variance/weight_mean", "E[W]", "replay"),
        Curve("variance/shaped_weight_mean", "E[f(W)]", "retired"),
    ),
    "**M** bounds every weight W (assumption A3). \n\n**E[W]** would be 1 over all that the past policy writes. \n\n"
    "**E[f(W)]** is below 1: its distance from 1 is the bias that shaping brings for less variance.",
    has_log_axis=True,
)  # fmt: skip
VARIANCE_BOUNDS = Chart(
    "Variance bounds of replayed gradients", "squared gradient of sampled logits, logarithmic",
    (
        Curve("variance/bound_general_loose", "A'", "warning", "dot"),
        Curve("variance/bound_general", "A", "warning"),
        Curve("variance/bound_independent_loose", "B'", "fresh", "dot"),
        Curve("variance/bound_independent", "B"),
    ),
    " \n\n".join(f"**{name}** {text}" for name, text in BOUNDS.items())
    + " \n\nThey are 0, below the axis, where the rewards of each replayed group are equal.",
    has_log_axis=True,
)  # fmt: skip
BUFFER_GROUP, RATIO_GROUP = "Replay buffer and retired set", "Importance ratios"
SYSTEM_GROUP = "Machine"
REPLAY_GROUPS = frozenset({BUFFER_GROUP, RATIO_GROUP})
"""Groups that are empty for a run without replay."""
GROUPS: dict[str, tuple[Chart, ...]] = {
    "Entropy and response length": (
        Chart("Entropy", "nats per token", (
            Curve("policy/entropy", "fresh rollouts"),
            Curve("replay/entropy_chosen", "candidates chosen", "replay"),
            Curve("replay/entropy_rejected", "candidates not chosen", "muted", "dot"),
        )),
        Chart("Response length", "tokens", (
            Curve("response/max_tokens", "longest", "warning", "dot"),
            Curve("response/mean_tokens", "mean of fresh rollouts"),
        )),
        Chart("Parts of the reward", "mean of fresh rollouts, before the weights", (
            Curve("reward/answer", "answer"),
            Curve("reward/format", "format", "replay"),
            Curve("reward/random", "random", "muted"),
            Curve("reward/code_1", "first code", "held_out"),
            Curve("reward/code_2", "second code", "retired"),
            Curve("reward/code_3", "third code", "with_code"),
            Curve("reward/failed", "failed calls of code, a share", "warning", "dot"),
        ), is_hidden_if_empty=True),
    ),
    BUFFER_GROUP: (
        Chart("Replay", "trajectories per step", (
            Curve("replay/num_replayed", "replayed", "replay"),
            Curve("replay/shortfall", "replay shortfall", "warning", "dot"),
            Curve("experience/num_inserted", "added to the buffer", "muted"),
        )),
        Chart("Age of replayed trajectories", "steps", (
            Curve("replay/age_max", "oldest", "warning", "dot"),
            Curve("replay/age_mean", "mean", "replay"),
        )),
        Chart("Stored trajectories", "trajectories of buffered questions", (
            Curve("buffer/num_trajectories", "stored", "replay"),
            Curve("replay/num_candidates", "candidates scored in the step", "muted", "dot"),
        )),
        EVER_SOLVED,
    ),
    RATIO_GROUP: (
        Chart("Importance ratio of replayed tokens", "π now / π then, logarithmic", (
            Curve("ratio/replayed_max", "largest", "warning", "dot"),
            Curve("ratio/replayed_mean", "mean", "replay"),
            Curve("ratio/shaped_mean", "mean of f(w)", "retired"),
        ), has_log_axis=True),
        Chart("Effective sample size", "share of replayed tokens", (
            Curve("ratio/replayed_ess", "effective sample size", "replay"),
        ), is_share=True),
        Chart("Gradient weight of replayed tokens", "f'(w) w; a fresh token's is 1", (
            Curve("replay/gradient_weight_p90", "90% quantile", "muted", "dot"),
            Curve("replay/gradient_weight_mean", "mean", "replay"),
            Curve("replay/gradient_weight_median", "median", "replay", "dash"),
            Curve("replay/gradient_weight_p10", "10% quantile", "muted", "dot"),
            Curve("replay/gradient_weight_young", "younger half"),
            Curve("replay/gradient_weight_old", "older half", "warning"),
        ), "How much the update learns from a replayed token. Shaping gives a token that is as likely as when it was "
           "written β / (1 + β)², a twelfth of a fresh token's weight at β = .1, and none more than a quarter."),
        TRAJECTORY_WEIGHTS,
        VARIANCE_BOUNDS,
        Chart("Importance ratio of fresh tokens", "π now / π at rollout, logarithmic", (
            Curve("ratio/fresh_max", "largest", "warning", "dot"),
            Curve("ratio/fresh_mean", "mean"),
        ), has_log_axis=True),
        Chart("Sampler against trainer", "|log-prob of the sampler - of the trainer|, nats, logarithmic", (
            Curve("generator/log_prob_gap_max", "largest", "warning", "dot"),
            Curve("generator/log_prob_gap", "mean"),
        ), has_log_axis=True),
        Chart("Correction for the sampler", "of fresh tokens", (
            Curve("generator/weight_mean", "mean weight"),
            Curve("generator/limited_share", "share limited", "warning", "dot"),
        )),
    ),
    "Gradient and loss": (
        Chart("Questions left in a mini-batch", "questions", (
            Curve("batch/questions_left", "mean of the step's mini-batches"),
            Curve("batch/questions_left_min", "fewest", "warning", "dot"),
        ), "Questions with a policy gradient: masked GRPO leaves them in, and their rollouts differ in reward."),
        Chart("Gradient norm", "before clipping", (Curve("optim/gradient_norm", "gradient norm"),)),
        Chart("Loss", "policy term and total", (
            Curve("loss/policy", "policy term"),
            Curve("loss/total", "total", "muted", "dot"),
            Curve("loss/sft", "of demonstrations (SFT)"),
        ), starts_at_zero=False),
        Chart("Clipped fresh tokens", "share of fresh tokens", (Curve("ratio/clip_share", "clipped"),), is_share=True),
        Chart("Skipped mini-batches", "loss or gradient not finite, per step", (
            Curve("optim/num_skipped", "skipped", "warning"),
        )),
        Chart("Updated tokens", "response tokens in the backward pass, per step", (
            Curve("optim/num_updated_tokens", "updated"),
        )),
    ),
    "Timing": (
        Chart("Time by phase", "seconds per step", (
            Curve("seconds/rollout", "rollout and grading"),
            Curve("seconds/score", "scoring candidates", "replay"),
            Curve("seconds/update", "update", "held_out"),
            Curve("seconds/other", "everything else", "muted"),
        ), is_stacked=True),
        Chart("Generated tokens", "tokens per step", (Curve("tokens/generated", "generated"),)),
    ),
    SYSTEM_GROUP: (
        Chart("GPU use", "share of time", (Curve("system/gpu_use", "mean of the node's GPUs"),), is_share=True,
              is_hidden_if_empty=True),
        Chart("Memory", "GiB", (
            Curve("system/gpu_memory_gib", "on the node's GPUs", "warning"),
            Curve("system/process_memory_gib", "of the worker and its processes"),
        ), is_hidden_if_empty=True),
        Chart("Processor use", "cores", (Curve("system/process_cores", "of the worker"),), is_hidden_if_empty=True),
    ),
}  # fmt: skip
"""Charts as the paper groups them, after the scores."""
CHARTS = tuple(chart for charts in GROUPS.values() for chart in charts)
KEYS = tuple(curve.key for chart in (PASS_RATES, *CHARTS) for curve in chart.curves)


def figure_of(chart: Chart, series: Series, view: CurveView = WHOLE) -> go.Figure | None:
    """Return the chart with the series that have values, or None if none has."""
    if chart.is_stacked:
        series = {key: [*view.own(points)] for key, points in series.items()}
    drawn = [curve for curve in chart.curves if series.get(curve.key)]
    if not drawn:
        return None
    if chart.is_stacked:
        view = replace(view, smoothing=0.0, has_log_axis=False)
    view = replace(view, has_log_axis=view.has_log_axis or chart.has_log_axis)
    figure = figures.new_figure()
    for curve in drawn:
        figures.add_line(figure, curve.name, view.line(series[curve.key]), curve.look, view, is_share=chart.is_share)
    if chart.is_stacked:
        figure.update_traces(stackgroup="all", line={"width": 0.5})
    use_axis_of(figure, chart)
    curve_view.dress(figure, view)
    return figure


def use_axis_of(figure: go.Figure, chart: Chart) -> None:
    """Give a figure the vertical axis of a chart: in percent for shares, and from zero or not."""
    if chart.is_share:
        figures.show_shares(figure)
    if not chart.starts_at_zero:
        figure.update_yaxes(rangemode="normal")


def pass_rates(
    series: Series, evaluations: Sequence[EvaluationRow], view: CurveView = WHOLE,
    titles: Mapping[str, str] = MappingProxyType({}),
) -> go.Figure | None:  # fmt: skip
    """Return the scores of training batches, of held-out questions and of benchmarks, these with their intervals.

    `titles` are those of benchmarks that have another than their name.
    """
    figure = figure_of(PASS_RATES, series, view)
    colours = theme.palette()
    palette = itertools.cycle((colours.replay, colours.retired, colours.medium, colours.warning, colours.muted))
    for name in dict.fromkeys(row.question_set for row in evaluations if row.question_set != "training"):
        rows = [row for row in evaluations if row.question_set == name]
        if figure is None:
            figure = figures.new_figure()
            figures.show_shares(figure)
            curve_view.dress(figure, view)
        is_held_out = name == "held_out"
        score = held_out_score(rows[-1].samples_per_question)
        colour = colours.held_out if is_held_out else next(palette)
        title = score if is_held_out else f"{titles.get(name, name)} Avg@{rows[-1].samples_per_question}"
        own = view.own(rows)
        of_parent = {"name": f"{title}, {figures.OF_PARENT}", "opacity": figures.FAINT, "showlegend": False}
        for part, named in ((rows[: len(rows) - len(own)], of_parent), (own, {"name": title})):
            x = view.line([MetricPoint(row.step, row.avg_at_n) for row in part]).x
            if len(x):
                figure.add_trace(
                    go.Scatter(
                        x=x, y=[row.avg_at_n for row in part], **named,
                        error_y=figures.reaches([(row.avg_at_n, *row.interval) for row in part], thickness=1, width=3),
                        mode="lines+markers", line={"color": colour, "width": 1.5},
                        marker={"color": colour, "size": 7, "symbol": "diamond"}, hovertemplate="%{y:.1%} at %{x}",
                    )
                )  # fmt: skip
    return figure


def show(chart: Chart, series: Series, key: str, view: CurveView = WHOLE, slug: str = "") -> None:
    """Show a chart in its frame."""
    show_figure(chart, figure_of(chart, series, view), key, slug)


def show_figure(chart: Chart, figure: go.Figure | None, key: str, slug: str = "") -> None:
    """Show a chart's figure in its frame; `slug` tells it from others, where its title in lower case cannot."""
    slug = slug or chart.title.lower().replace(" ", "-")
    names = ", ".join(curve.name for curve in chart.curves)
    alt = f"{chart.title}: {names}"
    figures.show_card(chart.title, chart.unit, figure, f"{key}-{slug}", alt, chart.explanation or None)
