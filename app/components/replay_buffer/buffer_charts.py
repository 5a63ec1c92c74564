"""Charts of the replay buffer at one step, of its flow between two, and the questions behind a chosen bar."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from exgrpo.app import theme
from exgrpo.app.components.widgets import address_choice, chart, data_table, figures
from exgrpo.app.formats import counted, escape_control_characters, literal
from exgrpo.app.queries.answers import ask
from exgrpo.db.queries import buffer
from exgrpo.db.rows.display_names import shorten
from exgrpo.db.rows.replays import BufferedQuestionRow, BufferState
from exgrpo.db.rows.runs import BucketRow, CandidateRow
from exgrpo_core import ExGRPOConfig, bucket_probabilities

ADDRESS = "mark"
MAX_QUESTIONS = 200
OUTSIDE, RETIRED = "outside", "retired"
_WAY_OPACITY = 0.45
_MANY_BARS = 40
"""More have no gaps, which would be narrower than a pixel."""


@dataclass(frozen=True, slots=True)
class View:
    """The compared buffer states: a run after `step`, and the same run, or the one named `other`, after `base`."""

    run_id: str
    step: int
    base: int
    state: BufferState
    base_state: BufferState
    other: str = ""

    @property
    def now(self) -> str:
        """The step of the page, in words."""
        return f"step {self.step:,}" + (" of this run" if self.other else "")

    @property
    def then(self) -> str:
        """The step that it is compared with, in words."""
        return f"step {self.base:,}" + (f" of {self.other}" if self.other else "")

    def forward(self) -> "View":
        """Return the view of one run with the earlier step as its base."""
        if self.other or self.base <= self.step:
            return self
        return View(self.run_id, self.base, self.step, self.base_state, self.state)

    def ways(self) -> dict[int, tuple[str, str]]:
        """Return where each question was at the base and is now: a bucket, `RETIRED` or `OUTSIDE`."""
        states = (self.base_state, self.state)
        seen = {index for state in states for index in (*state.buckets, *state.retired)}
        return {index: (_location(self.base_state, index), _location(self.state, index)) for index in seen}

    def flows(self) -> Counter[tuple[str, str]]:
        """Return the number of questions by start and end location between the two steps."""
        return Counter(self.ways().values())


def _location(state: BufferState, question_index: int) -> str:
    return RETIRED if question_index in state.retired else str(state.buckets.get(question_index, OUTSIDE))


def sizes(view: View, num_buckets: int, meaning: str) -> go.Figure:
    """Return questions by bucket after the step, with lines for the step it is compared with."""
    colours = theme.palette()
    buckets = list(range(num_buckets + 1))
    figure = _bars(meaning, showlegend=True)
    now, then = (
        [list(state.buckets.values()).count(bucket) for bucket in buckets] for state in (view.state, view.base_state)
    )
    hover = "questions in bucket %{x}: %{y:,}<extra></extra>"
    figure.add_trace(figures.bars(buckets, now, f"after {view.now}", colours.replay, hover))
    name = escape_control_characters(f"after {view.then}").replace("<", "&lt;")
    figure.add_trace(_ticks(buckets, then, name, "then in bucket %{x}: %{y:,}<extra></extra>"))
    return figure


def draws(rows: Sequence[BucketRow], meaning: str) -> go.Figure | None:
    """Return draws by bucket against what the probabilities expect, and the overflow."""
    total = sum(row.num_drawn for row in rows)
    if not total:
        return None
    colours = theme.palette()
    buckets = [row.bucket for row in rows]
    figure = _bars(meaning, barmode="stack", showlegend=True)
    hover = "bucket %{x}: %{y} drawn<extra></extra>"
    figure.add_trace(figures.bars(buckets, [row.num_drawn for row in rows], "drawn", colours.fresh, hover))
    expected = [row.probability * total for row in rows]
    figure.add_trace(_ticks(buckets, expected, "expected", "bucket %{x}: %{y:.2f} expected<extra></extra>"))
    moved = [row.overflow for row in rows]
    if any(moved):
        hover = "bucket %{x}: overflow %{y}<extra></extra>"
        figure.add_trace(figures.bars(buckets, moved, "overflow, moved to other buckets", colours.warning, hover))
    if max(row.num_drawn for row in rows) <= figures.MAX_TICKED_STEPS:
        figure.update_yaxes(tick0=0, dtick=1)
    return figure


def entropies(rows: Sequence[CandidateRow]) -> go.Figure | None:
    """Return boxes of candidates' entropies by bucket, chosen ones next to the others."""
    if not rows:
        return None
    colours = theme.palette()
    figure = _bars("bucket when drawn", boxmode="group", showlegend=True)
    for is_chosen, name, colour in ((True, "chosen", colours.replay), (False, "not chosen", colours.muted)):
        group = [row for row in rows if row.is_chosen is is_chosen]
        figure.add_trace(
            go.Box(
                x=np.array([row.bucket for row in group], dtype=np.int32),
                y=np.array([row.entropy for row in group], dtype=np.float32),
                name=name, marker={"color": colour, "size": 3}, line={"width": 1.5}, boxpoints="outliers",
            )
        )  # fmt: skip
    return figure


def flow(view: View) -> go.Figure | None:
    """Return the Sankey diagram of questions between buckets from the base to the step."""
    counts = view.flows()
    if not counts:
        return None
    colours = theme.palette()
    buckets = {location for way in counts for location in way} - {OUTSIDE, RETIRED}
    order = [OUTSIDE, *sorted(buckets, key=int), RETIRED]
    starts = [location for location in order if any(way[0] == location for way in counts)]
    ends = [location for location in order if any(way[1] == location for way in counts)]
    ways = sorted(counts, key=lambda way: (order.index(way[0]), order.index(way[1])))
    outgoing, incoming = (dict.fromkeys(ends_of_ways, 0) for ends_of_ways in (starts, ends))
    for (was, now), count in counts.items():
        outgoing[was] += count
        incoming[now] += count
    tints = {OUTSIDE: colours.muted, RETIRED: colours.retired}
    nodes = [tints.get(location, colours.replay) for location in (*starts, *ends)]
    margin = {"l": 76, "r": 76, "t": 12, "b": 56}
    figure = figures.new_figure(130 + 38 * max(len(starts), len(ends)), margin=margin)
    figure.add_trace(
        go.Sankey(
            arrangement="snap",
            node={
                "x": [0.001] * len(starts) + [0.999] * len(ends),
                "y": [*_heights(starts, outgoing), *_heights(ends, incoming)],
                "label": list(map(location_name, (*starts, *ends))), "color": nodes, "pad": 14, "thickness": 14,
                "line": {"width": 0}, "hovertemplate": "%{label}, questions: %{value:,}<extra></extra>",
            },
            link={
                "source": [starts.index(was) for was, _ in ways],
                "target": [len(starts) + ends.index(now) for _, now in ways],
                "value": [counts[way] for way in ways],
                "color": [_way_colour(was, now) for was, now in ways],
                "hovertemplate": "%{source.label} → %{target.label}, questions: %{value:,}<extra></extra>",
            },
            textfont={"size": 12, "color": colours.text},
        )
    )  # fmt: skip
    return figure


def counts(values: Mapping[int, int], title: str, unit: str) -> go.Figure | None:
    """Return bars of how many trajectories have which number."""
    if not values:
        return None
    figure = _bars(title)
    figure.update_layout(bargap=0.0 if len(values) > _MANY_BARS else 0.25)
    hover = f"{unit} %{{x}}, trajectories: %{{y:,}}<extra></extra>"
    x, y = (np.array(list(numbers), dtype=np.int32) for numbers in (values, values.values()))
    figure.add_trace(figures.bars(x, y, "", theme.palette().replay, hover))
    return figure


def _bars(title: str, **layout: Any) -> go.Figure:  # noqa: ANN401 - settings of plotly
    return figures.new_figure(x_title=title, hovermode="closest", bargap=0.25, dragmode=False, **layout)


def _ticks(x: Sequence[int], y: Sequence[float], name: str, hover: str) -> go.Scatter:
    marker = {"color": theme.palette().text, "symbol": "line-ew-open", "size": 14, "line": {"width": 2}}
    return go.Scatter(x=x, y=y, name=name, mode="markers", marker=marker, hovertemplate=hover)


def _way_colour(was: str, now: str) -> str:
    """Return the colour of a flow: to more correct rollouts, to fewer, into the retired set, or neither."""
    colours = theme.palette()
    if now == RETIRED:
        return figures.faded(colours.retired, _WAY_OPACITY)
    if was in (now, RETIRED) or OUTSIDE in (was, now):
        return figures.faded(colours.muted, _WAY_OPACITY * 0.6)
    return figures.faded(colours.fresh if int(now) > int(was) else colours.held_out, _WAY_OPACITY)


def _heights(locations: Sequence[str], counts: Mapping[str, int]) -> list[float]:
    """Return the centres of nodes from top to bottom in their order, with room for each label."""
    least = 0.04 * sum(counts.values())
    shares = [max(counts[location], least) for location in locations]
    total, above, centres = sum(shares), 0.0, []
    for share in shares:
        centres.append((above + share / 2) / total)
        above += share
    return centres


def show_weights(algorithm: ExGRPOConfig, meaning: str) -> None:
    """Show the probability of every bucket, which `meaning` names, when all buckets hold questions."""
    most = algorithm.rollouts_per_question
    probabilities = bucket_probabilities(np.arange(1, most) / most, algorithm.bucket_center, algorithm.bucket_spread)
    shares = probabilities.tolist()
    figure = figures.new_figure(
        170, "", x={"type": "category"}, y={"tickformat": ".0%"}, hovermode="closest", bargap=0.25
    )
    buckets = [f"{correct}/{most}" for correct in range(1, most)]
    hover = "bucket %{x}: %{y:.1%}<extra></extra>"
    figure.add_trace(figures.bars(buckets, shares, "", theme.palette().replay, hover))
    st.markdown(f"**Bucket draws** &nbsp; :gray[:small[probability by {meaning}]]")
    alt = "Bars: probability that a replayed question comes from each bucket"
    chart.show(figure, "bucket-weights", alt, has_tools=False)
    st.caption(f"Most likely bucket : least likely = {max(shares) / min(shares):.3g}")


def show_questions(view: View, bar: str) -> None:
    """Show the questions behind a chosen bar, each with a link to its trajectories."""
    indices = questions_of(view, bar)
    with st.container(border=True, key="behind"):
        st.markdown(f"**Questions: {literal(describe(bar))}**")
        if not indices:
            st.markdown(":gray[None at this step.]")
            return
        listed = indices[:MAX_QUESTIONS]
        more = f", the first {MAX_QUESTIONS} listed" if len(indices) > len(listed) else ""
        data_table.show_caption(
            f"{counted(len(indices), 'question')}{more}",
            lambda: _table(view, ask(buffer.buffered_questions, view.run_id, view.step, indices)),
            f"questions-after-step-{view.step}", key="behind",
        )  # fmt: skip
        rows = ask(buffer.buffered_questions, view.run_id, view.step, listed)
        frame = _table(view, rows)
        picked = data_table.pick(
            frame, f"behind-{bar}-{view.step}-{view.base}", "Questions behind the chosen bar",
            [str(row.question_index) for row in rows], most=9,
        )  # fmt: skip
    if picked is not None:
        query = {"run": view.run_id, "view": "Trajectories", "question-index": str(rows[picked].question_index)}
        st.switch_page("app_pages/run.py", query_params=query)


def questions_of(view: View, bar: str) -> list[int]:
    """Return the questions behind a bar, ascending; none for an unknown one."""
    kind, _, value = bar.partition(":")
    if kind == "bucket":
        return sorted(index for index, bucket in view.state.buckets.items() if str(bucket) == value)
    if kind == RETIRED:
        return sorted(view.state.retired)
    if kind == "flow":
        start, _, end = value.partition(":")
        return sorted(index for index, way in view.ways().items() if way == (start, end))
    numbers = {"rollout": "rollout_step", "replays": "num_replays"}
    stored = ask(buffer.stored_trajectories, view.run_id, view.step) if kind in numbers else []
    return sorted({row.question_index for row in stored if str(getattr(row, numbers[kind])) == value})


def describe(bar: str) -> str:
    """Return what a chosen bar means, in words."""
    kind, _, value = bar.partition(":")
    if kind == "flow":
        start, _, end = value.partition(":")
        return f"{location_name(start)} → {location_name(end)}"
    names = {
        "bucket": f"in bucket {value}",
        RETIRED: "retired",
        "rollout": f"with a trajectory generated in step {value}",
        "replays": f"with a trajectory replayed {value} time{'' if value == '1' else 's'}",
    }
    return names.get(kind, "unknown bar")


def choose(label: str, bars: Sequence[str], key: str) -> None:
    """Show a choice among bars; the chosen one is kept in the address."""
    current = st.query_params.get(ADDRESS)
    st.selectbox(
        label, bars, index=None, placeholder="Choose which", format_func=describe, width=320,
        **address_choice.bound(ADDRESS, current if current in bars else None, key),
    )  # fmt: skip


def location_name(location: str) -> str:
    """Return the displayed name of a bucket, of the retired set, or of neither."""
    return {OUTSIDE: "not stored", RETIRED: "retired"}.get(location, f"bucket {location}")


def _table(view: View, rows: Sequence[BufferedQuestionRow]) -> pd.DataFrame:
    ways = view.ways()
    names = [tuple(map(location_name, ways.get(row.question_index, (OUTSIDE, OUTSIDE)))) for row in rows]
    return pd.DataFrame(
        {
            "Question": [row.question_index for row in rows],
            escape_control_characters(f"After {view.then}"): [was for was, _ in names],
            escape_control_characters(f"After {view.now}"): [now for _, now in names],
            "Stored": [row.num_stored for row in rows],
            "Replays": [row.num_replays for row in rows],
            "Last replayed": [row.last_replayed_step for row in rows],
            "Prompt": [escape_control_characters(shorten(row.prompt_text)) for row in rows],
        }
    )
