"""What the views of a run's page show: curves, results of evaluations and judges, attempts, configuration."""

import io
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from exgrpo.app import theme
from exgrpo.app.components.replay_buffer import buffer_over_steps
from exgrpo.app.components.widgets import curve_view, curves, data_table, figures, notice, own_charts, run_state
from exgrpo.app.components.widgets.curve_view import CurveView, Line, paired
from exgrpo.app.components.widgets.curves import Series
from exgrpo.app.components.widgets.own_charts import OwnChart
from exgrpo.app.components.widgets.spec_text import as_yaml, show_download
from exgrpo.app.formats import byte_size, counted, escape_control_characters, exact, hover, number, share
from exgrpo.app.queries.answers import ask
from exgrpo.db.queries import runs
from exgrpo.db.queries.metrics import WHOLE_REWARD
from exgrpo.db.rows.judging import JudgeRow
from exgrpo.db.rows.runs import AttemptRow, CheckpointRow, EvaluationRow, MetricPoint, RewardCountRow, RunRow
from exgrpo.db.rows.scores import BenchmarkScoreRow

MAX_DOWNLOAD_BYTES = 200_000_000
"""Larger checkpoints are copied by their path: a download is packed in memory."""


def show_curves(
    series: Series, evaluations: Sequence[EvaluationRow], ratios: Mapping[int, Sequence[float]] | None, view: CurveView,
    *, is_live: bool, titles: Mapping[str, str], rewards: Sequence[RewardCountRow],
) -> None:  # fmt: skip
    """Show the first charts, and the others folded by group, two a row; an ended run's without empty charts.

    `ratios` are those of replayed trajectories by step, None for a run that does not replay; `titles` are those of
    benchmarks that have another than their name.
    """
    scores = [MetricPoint(row.step, row.avg_at_n) for row in evaluations]
    view = view.spanning([view.line([points[0], points[-1]]) for points in [*series.values(), scores] if points])
    scores_figure = curves.pass_rates(series, evaluations, view, titles)
    first: list[Callable[[], None]] = []
    if is_live or scores_figure is not None:
        first.append(partial(curves.show_figure, curves.PASS_RATES, scores_figure, "curve"))
    folded: dict[str, list[Callable[[], None]]] = {
        "Histograms of rewards": [
            partial(_show_rewards, part, [row for row in rewards if row.part == part], view)
            for part in dict.fromkeys(row.part for row in rewards)
        ]
    }
    for title, charts in curves.GROUPS.items():
        if ratios is None and title in curves.REPLAY_GROUPS:
            continue
        cards: list[Callable[[], None]] = [
            partial(curves.show, chart, series, "curve", view)
            for chart in charts
            if (is_live and not chart.is_hidden_if_empty) or any(series.get(curve.key) for curve in chart.curves)
        ]
        if title == curves.RATIO_GROUP and ratios is not None:
            cards.append(lambda: buffer_over_steps.show_ratios(ratios, view))
        num_open = 0 if title == curves.SYSTEM_GROUP else figures.NUM_OPEN - len(first)
        first += cards[:num_open]
        folded[title] = cards[num_open:]
    _show_cards("first", first)
    for title, cards in folded.items():
        if cards:
            with st.expander(f"{title} · {counted(len(cards), 'chart')}", key=f"curve-{title}"):
                _show_cards(title, cards)


def show_own(charts: Sequence[OwnChart], series: Series, view: CurveView) -> None:
    """Show the charts that the reader put together, before all others."""

    def line_of(_index: int, key: str, over: str | None) -> Line:
        return paired(view.own(series[key]), series[over]) if over else view.line(series[key])

    cards = [partial(own_charts.show, chart, [""], line_of, view, f"own-{index}") for index, chart in enumerate(charts)]
    if cards:
        st.subheader("Own charts", anchor=False)
        _show_cards("own", cards)


def show_recorded(charts: Sequence[curves.Chart], series: Series, view: CurveView) -> None:
    """Show the metrics that the run's own loop recorded."""
    if charts:
        st.subheader("Recorded metrics", anchor=False)
        drawn = [chart for chart in charts if any(curve.key in series for curve in chart.curves)]
        _show_cards(
            "recorded", [partial(curves.show, chart, series, "recorded", view, chart.curves[0].key) for chart in drawn]
        )
        if len(drawn) < len(charts):
            st.caption(f"{len(drawn)} of {len(charts):,} metrics are drawn; **All steps** exports each of them.")


def _show_cards(name: str, cards: Sequence[Callable[[], None]]) -> None:
    with figures.grid(name):
        for card in cards:
            card()


def show_attempts(
    row: RunRow, attempts: Sequence[AttemptRow], checkpoints: Sequence[CheckpointRow], folder: Path
) -> None:
    """Show a job's attempts, newest first, and of a training run the checkpoints that are kept in its `folder`."""
    newest_first = list(attempts)[::-1]
    starts = [
        row.branched_from_step if item.resumed_from_step is None else item.resumed_from_step for item in newest_first
    ]
    frame = pd.DataFrame(
        {
            "Attempt": [row.attempt for row in newest_first],
            "State": [run_state.state_name(row.status) for row in newest_first],
            "Resumed from step": ["start" if step is None else f"{step:,}" for step in starts],
            "Started": [exact(row.started_at) for row in newest_first],
            "Ended": [exact(row.ended_at) for row in newest_first],
            "Reason": [escape_control_characters(row.status_reason) for row in newest_first],
        }
    )
    data_table.show_titled("Attempts", frame, "attempts", "Attempts of the run")
    if not attempts:
        notice.show_empty("history", "No attempt yet", "The run waits in the queue.")
    if row.kind != "train":
        return
    frame = pd.DataFrame(
        {
            "Step": [row.step for row in checkpoints],
            "Kept as": [row.kept_as for row in checkpoints],
            "Size": [byte_size(row.num_bytes) for row in checkpoints],
            "Written": [exact(row.at) for row in checkpoints],
            "Path in the run directory": [escape_control_characters(row.path) for row in checkpoints],
        }
    )
    data_table.show_titled("Checkpoints", frame, "checkpoints", "Checkpoints of the run")
    if not checkpoints:
        notice.show_empty("save", "No checkpoint yet", "The first one is written at the checkpoint interval.")
        return
    _show_downloads(row, checkpoints, folder)
    st.caption("This writes a checkpoint's model as a folder that transformers and vLLM load:")
    st.code(f"exgrpo export {row.run_id}@{checkpoints[-1].step} FOLDER", language=None)


def _show_downloads(row: RunRow, checkpoints: Sequence[CheckpointRow], folder: Path) -> None:
    """Show a download of the newest checkpoint if it is small, and where all lie."""
    newest = checkpoints[-1]
    if newest.num_bytes <= MAX_DOWNLOAD_BYTES:
        st.download_button(
            f"Download the checkpoint of step {newest.step:,} ({byte_size(newest.num_bytes)})",
            lambda: _packed(folder / newest.path), file_name=f"{row.run_id}-step-{newest.step}.tar",
            mime="application/x-tar", icon=":material/download:", key="checkpoint-download", on_click="ignore",
        )  # fmt: skip
    st.caption("The newest checkpoint on the machine of the workbench:")
    st.code(escape_control_characters(str(folder / newest.path)), language=None)


def _packed(path: Path) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(path, arcname=path.name)
    return packed.getvalue()


def show_whole(spec: Mapping[str, object]) -> None:
    """Show the whole specification as YAML."""
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.subheader("Whole specification", anchor=False, width="content")
        show_download(spec)
    st.code(escape_control_characters(as_yaml(spec)), language=None, height=480)


MIN_SAMPLES = 30
"""Fewer rewards are drawn as points."""


def _show_rewards(part: str, counts: Sequence[RewardCountRow], view: CurveView) -> None:
    """Show the rewards of a run's steps, or a part of them by name."""
    title = "Rewards" if part == WHOLE_REWARD else f"Reward part: {escape_control_characters(part)}"
    alt = f"{title}: how many fresh responses of each step had which"
    figures.show_card(title, "fresh responses of a step", histogram(counts, view), f"curve-rewards-{part}", alt)


def histogram(counts: Sequence[RewardCountRow], view: CurveView) -> go.Figure | None:
    """Return a map of steps against rewards; of few responses a point each; None where steps have no place on x."""
    steps = sorted({row.step for row in counts})
    x = view.line([MetricPoint(step, 0.0) for step in steps]).x
    if not x.size:
        return None
    figure = figures.new_figure()
    place_of = {step: place for place, step in enumerate(steps)}
    colours = theme.palette()
    if sum(row.num_responses for row in counts) < MIN_SAMPLES:
        each = [row for row in counts for _ in range(row.num_responses)]
        figure.add_trace(
            go.Scatter(
                x=x[[place_of[row.step] for row in each]], y=[row.least for row in each], mode="markers",
                marker={"color": colours.fresh, "size": 7, "opacity": 0.5},
                hovertemplate=f"%{{y:{hover(row.least for row in each)}}}<extra></extra>",
            )
        )  # fmt: skip
    else:
        bins = sorted({(row.least, row.largest) for row in counts})
        cells = np.zeros((len(bins), len(steps)), dtype=np.int32)
        for row in counts:
            cells[bins.index((row.least, row.largest)), place_of[row.step]] = row.num_responses
        names = [f"{low:z.6g}" if low == high else f"{low:z.6g} to {high:z.6g}" for low, high in bins]
        figure.add_trace(
            go.Heatmap(
                x=x, y=names, z=cells, zmin=0, colorscale=[[0, colours.empty_cell], [1, colours.full_cell]],
                colorbar=figures.colour_bar("responses"),
                hovertemplate="reward %{y} at %{x}<br>responses: %{z:,}<extra></extra>",
            )
        )  # fmt: skip
        figure.update_yaxes(showgrid=False, type="category")
    curve_view.dress(figure, replace(view, has_log_axis=False))
    figure.update_layout(hovermode="closest")
    return figure


def show_scores(rows: Sequence[BenchmarkScoreRow]) -> None:
    """Show one row per benchmark and scheme of scoring, and the means of the parts of a training reward."""
    if not rows:
        text = "A benchmark's score appears when its last question is answered."
        notice.show_empty("leaderboard", "No score yet", text)
        return
    number = st.column_config.NumberColumn
    columns = {
        "Score": number(format="%.1f%%"),
        "From": number("95% from", format="%.1f%%", help="Ends of the interval, clustered over questions"),
        "To": number("to", format="%.1f%%"),
        "Truncated": number(format="%.1f%%", help="Answers cut at the length limit"),
        "Mean tokens": number(format="%.0f"),
    }
    alt = "Scores of the evaluation by benchmark and scheme"
    data_table.show_titled("Scores", score_table(rows), "scores", alt, columns)
    # The schemes of a benchmark have the same rewards.
    means = {(row.title, part): mean for row in rows for part, mean in row.reward_means.items()}
    if means:
        names = [tuple(map(escape_control_characters, name)) for name in means]
        rewards = pd.DataFrame(names, columns=["Benchmark", "Part"]).assign(Mean=list(means.values()))
        alt = "Mean of each part of the training reward by benchmark"
        data_table.show_titled("Rewards", rewards, "rewards", alt, {"Mean": number(format="%.4f")})
        text = "Means over all responses before weights. A part for correct answers follows the score as rewarded."
        st.caption(text)


def score_table(rows: Sequence[BenchmarkScoreRow]) -> pd.DataFrame:
    """Return one row per benchmark and scheme of scoring, scores in percent."""
    return pd.DataFrame(
        {
            "Benchmark": [escape_control_characters(row.title) for row in rows],
            "Scored": [row.scheme for row in rows],
            "Measure": [row.metric for row in rows],
            "Score": [100 * row.score for row in rows],
            "From": [100 * row.interval[0] for row in rows],
            "To": [100 * row.interval[1] for row in rows],
            "Questions": [row.num_questions for row in rows],
            "Mean tokens": [row.mean_tokens for row in rows],
            "Truncated": [100 * row.truncated_share for row in rows],
        }
    )


_COUNTS = (("Valid", "num_valid"), ("Not valid", "num_invalid"), ("Unjudged", "num_unjudged"))


def show_judge(rows: Sequence[JudgeRow], reasons: Mapping[str, int]) -> None:
    """Show counts of verdicts over responses, what they cost, and why votes gave no verdict."""
    if not rows:
        notice.show_empty("gavel", "No verdict yet", "Verdicts appear after the judge's first votes.")
        return
    for row in rows:
        counts = ((name, getattr(row, field)) for name, field in _COUNTS)
        told = "Responses, by the majority of their votes"
        tiles = [(name, number(count), share(count / row.num_responses), told) for name, count in counts]
        votes = counted(row.num_votes, "vote")
        figures.show_tiles([*tiles, ("Tokens", number(row.num_tokens), votes, "Prompt and answer tokens of the judge")])
        judged = ask(runs.get_run, row.source)
        source = judged.name if judged else row.source
        st.text(escape_control_characters(f"Judge {row.judge}, prompt {row.prompt}, on {source}"))
    if reasons:
        frame = pd.DataFrame({"Why a vote gave no verdict": list(reasons), "Votes": list(reasons.values())})
        data_table.show(frame, "unjudged-votes", "Reasons of votes without a verdict")
