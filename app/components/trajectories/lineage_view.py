"""The history of a trajectory: generated, scored, replayed, and the buckets of its question."""

from collections.abc import Sequence
from itertools import groupby

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from exgrpo.app import theme
from exgrpo.app.components.widgets import data_table, figures
from exgrpo.app.formats import NATS_HOVER, NONE_SHOWN, counted, nats, number
from exgrpo.db.queries.lineage import LINEAGE_MOVES
from exgrpo.db.rows.display_names import LINEAGE_EVENTS
from exgrpo.db.rows.trajectories import LineageRow, TrajectoryRow

_NUMBERS = {
    "Entropy": "entropy", "NLL": "nll", "Mean ratio": "mean_ratio", "Largest ratio": "max_ratio", "Reward": "reward",
    "Advantage": "advantage", "Candidates": "num_candidates",
}  # fmt: skip


def show(row: TrajectoryRow, rows: Sequence[LineageRow]) -> None:
    """Show the story as a sentence, a chart and a table."""
    st.markdown(_summary(row, rows))
    figures.show_card(
        "Entropy and bucket by step", "nats per token; bucket of the question, 0 to K", chart(row, rows),
        f"lineage-{row.trajectory_id}",
        "Entropy of the trajectory whenever it was scored, and the bucket of its question, over steps",
    )  # fmt: skip
    name = f"lineage-{row.trajectory_id}"
    data_table.show(table(row, rows), name, "What happened, step by step", key=f"lineage-table-{row.trajectory_id}")


def _summary(row: TrajectoryRow, rows: Sequence[LineageRow]) -> str:
    stored = next((entry for entry in rows if entry.kind == "inserted"), None)
    replays = [entry for entry in rows if entry.kind == "replayed"]
    num_scored = len(replays) + sum(entry.kind == "scored" for entry in rows)
    facts = [_generated(row)]
    facts.append(f"stored in bucket {stored.bucket_to}" if stored else "not stored in the buffer")
    if num_scored:
        facts.append(f"candidate in {counted(num_scored, 'step')}, replayed in {len(replays):,}")
    moves = [entry for entry in rows if entry.kind in LINEAGE_MOVES]
    if moves and moves[-1].bucket_to is None:
        event = "retired" if moves[-1].kind == "retired" else "left the buffer (limit)"
        facts.append(f"its question {event} in step {moves[-1].step:,}")
    elif moves:
        facts.append(f"its question now in bucket {moves[-1].bucket_to}")
    if replays:
        facts.append(f"entropy {nats(row.mean_entropy)} at rollout, {nats(replays[-1].entropy)} at its last replay")
    return f"{'; '.join(facts)}."


def _generated(row: TrajectoryRow) -> str:
    extra = row.extra or {}
    version, num_tokens = extra.get("policy_version"), extra.get("num_prefix_tokens")
    begun = "" if num_tokens is None else f" from the first {num_tokens:,} tokens of trajectory {extra['prefix_of']}"
    if not isinstance(version, int):
        return f"Generated in step {row.step:,}{begun}"
    return f"Trained on in step {row.step:,}, generated{begun} by the policy after {counted(version, 'step')}"


def chart(row: TrajectoryRow, rows: Sequence[LineageRow]) -> go.Figure:
    """Return entropies as points and the question's bucket as steps on a second axis."""
    colours = theme.palette()
    figure = figures.new_figure(height=270, y={"title": figures.axis_title("entropy")})
    moves = [entry for entry in rows if entry.kind in LINEAGE_MOVES]
    stored = [entry for entry in rows if entry.kind == "inserted" and entry.step not in {move.step for move in moves}]
    bucket_changes = sorted([*stored, *moves], key=lambda entry: entry.step)
    if bucket_changes:
        places: list[tuple[int, int | None]] = []
        for entry in bucket_changes:
            if entry.bucket_to is None and places:  # it leaves the buffer: the line goes on to there
                places.append((entry.step, places[-1][1]))
            places.append((entry.step, entry.bucket_to))
        places.append((max(entry.step for entry in rows), places[-1][1]))
        figure.add_trace(
            go.Scatter(
                x=[step for step, _ in places], y=[bucket for _, bucket in places],
                name="bucket of the question", yaxis="y2", mode="lines+markers",
                line={"color": colours.muted, "width": 1.5, "shape": "hv", "dash": "dot"},
                marker={"color": colours.muted, "size": 4}, hovertemplate="bucket %{y}",
            )
        )  # fmt: skip
    series = (
        ("at rollout", [(row.step, row.mean_entropy)], colours.fresh, "circle"),
        ("candidate, not chosen", _entropies(rows, "scored"), colours.muted, "circle-open"),
        ("replayed", _entropies(rows, "replayed"), colours.replay, "diamond"),
    )
    for name, points, colour, symbol in series:
        if points:
            figure.add_trace(
                go.Scatter(
                    x=np.array([step for step, _ in points], dtype=np.int32),
                    y=np.array([value for _, value in points], dtype=np.float32), name=name, mode="markers",
                    marker={"color": colour, "size": 10, "symbol": symbol, "line": {"width": 2, "color": colour}},
                    hovertemplate=f"%{{y:{NATS_HOVER}}} nats",
                )
            )  # fmt: skip
    retired_line = {"color": colours.retired, "dash": "dash", "width": 1.5}
    for step in [entry.step for entry in moves if entry.kind == "retired"]:
        figure.add_vline(x=step, line=retired_line, annotation_text="retired", annotation_position="top left")
    second_axis = {
        "overlaying": "y", "side": "right", "showgrid": False, "rangemode": "tozero", "dtick": 1, "zeroline": False,
        "title": figures.axis_title("bucket"),
    }  # fmt: skip
    figure.update_layout(yaxis2=second_axis, margin={"r": 30})
    return figure


def table(row: TrajectoryRow, rows: Sequence[LineageRow]) -> pd.DataFrame:
    """Return one row per event, the rollout first; equal ones in a row are one with their count."""
    rollout = LineageRow(
        row.step, "generated", entropy=row.mean_entropy, nll=-row.mean_log_prob, reward=row.reward,
        advantage=row.advantage,
    )  # fmt: skip
    counts = [(entry, len([*same])) for entry, same in groupby([rollout, *rows])]
    entries = [entry for entry, _ in counts]
    return pd.DataFrame(
        {
            "Step": [entry.step for entry in entries],
            "Age": [entry.step - row.step for entry in entries],
            "Event": [
                LINEAGE_EVENTS.get(entry.kind, "generated") + (f" ({counted(count, 'time')})" if count > 1 else "")
                for entry, count in counts
            ],
            "Bucket": [_bucket_text(entry) for entry in entries],
            **{name: [number(getattr(entry, field)) for entry in entries] for name, field in _NUMBERS.items()},
        }
    )


def _entropies(rows: Sequence[LineageRow], kind: str) -> list[tuple[int, float]]:
    return [(entry.step, entry.entropy) for entry in rows if entry.kind == kind and entry.entropy is not None]


def _bucket_text(entry: LineageRow) -> str:
    stays = entry.kind == "evicted" and entry.bucket_to is not None
    if entry.kind in LINEAGE_MOVES and not stays:
        names = ["new" if entry.bucket_from is None else str(entry.bucket_from)]
        outside = "retired" if entry.kind == "retired" else "outside"
        names.append(outside if entry.bucket_to is None else str(entry.bucket_to))
        return " → ".join(names)
    return NONE_SHOWN if entry.bucket_to is None else str(entry.bucket_to)
