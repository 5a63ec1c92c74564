"""What replay costs and saves, as in the paper's table: memory, time per step, and fresh rollouts beside on-policy."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import pandas as pd
import streamlit as st

from app.components.widgets import exports
from app.formats import NONE_SHOWN, escape_control_characters
from app.queries.answers import ask
from db.queries import metrics, runs
from db.rows.algorithm_of_spec import algorithm_settings, may_replay
from db.rows.runs import RunRow

ON_POLICY, OVERHEAD = "On-policy", "Overhead"
_ON_POLICY_METHODS = ("Dr.GRPO", "GRPO")
_BYTES_A_MEGABYTE = 1e6
_ALL_POINTS = 1_000_000
_TIMES = ("Peak step, s", "Min. step, s", "Avg. step, s")


def show(drawn: Sequence[RunRow], key: str = "costs") -> None:
    """Show one row per run, and the overhead over the first on-policy run of the same backbone."""
    rows = overheads([cost for row in drawn if (cost := costs(row)) is not None])
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.subheader("Memory, time per step and fresh rollouts", anchor=False, width="content")
        if rows:
            exports.show(pd.DataFrame(rows), key)
    if not rows:
        st.caption("No step has been recorded yet.")
        return
    number = st.column_config.NumberColumn
    st.dataframe(
        pd.DataFrame(rows),
        hide_index=True,
        placeholder=NONE_SHOWN,
        alt="Memory of the replay buffer, seconds per step and fresh rollouts of every run",
        column_config={
            "Index, MB": number(format="%.2f", help="The replay buffer's index in memory; tokens lie in files"),
            "Files, MB": number(format="%.1f", help="Stored trajectories: token ids and log-probs"),
            "Trajectories": number(format="localized", help="Stored trajectories of buffered questions"),
            **{name: number(format="%.2f") for name in _TIMES},
            "Fresh questions": number(format="%.1f", help="Questions of a step that are not replayed, mean over steps"),
            "Fresh rollouts": number(format="localized", help="Rollouts generated in all steps together"),
            "Per step": number(format="%.1f", help="Fresh rollouts per step"),
            OVERHEAD: st.column_config.TextColumn(
                help="Peak, least and mean step over those of the first on-policy run of the same backbone"
            ),
            "Of on-policy": number(format="%.1f%%", help="Share of what on-policy training generates in as many steps"),
        },
    )


def costs(row: RunRow) -> dict[str, Any] | None:
    """Return what a run's steps cost, sizes in MB and times in seconds; None where no step's time was recorded."""
    series = ask(metrics.metric_series, row.run_id, ("seconds/step", "replay/num_replayed"), _ALL_POINTS)
    seconds, replayed = ([point.value for point in points] for points in series.values())
    if not seconds:
        return None
    last, spec = ask(metrics.last_metrics, row.run_id), ask(runs.run_spec, row.run_id)
    settings = algorithm_settings(spec)
    num_fresh = last.get("rollouts/fresh_total")
    num_on_policy = settings["batch_size"] * settings["rollouts_per_question"] * len(seconds)
    replays = may_replay(spec)
    return {
        "Run": escape_control_characters(row.name),
        "Backbone": escape_control_characters(row.model),
        "Method": ON_POLICY if row.method in _ON_POLICY_METHODS else escape_control_characters(row.method),
        "Index, MB": _megabytes(last.get("buffer/memory_bytes")) if replays else None,
        "Files, MB": _megabytes(last.get("buffer/file_bytes")) if replays else None,
        "Trajectories": last.get("buffer/num_trajectories") if replays else None,
        "Peak step, s": max(seconds),
        "Min. step, s": min(seconds),
        "Avg. step, s": fmean(seconds),
        "Fresh questions": settings["batch_size"] - fmean(replayed) if replayed and row.has_settings else None,
        "Fresh rollouts": num_fresh,
        "Per step": None if num_fresh is None else num_fresh / len(seconds),
        "Of on-policy": 100.0 * num_fresh / num_on_policy if num_fresh is not None and row.has_settings else None,
    }


def overheads(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows, each that replays with its times in percent over the first on-policy row of its backbone."""
    baselines: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        if row["Method"] == ON_POLICY:
            baselines.setdefault(row["Backbone"], row)
    return [dict(row) | _overhead(row, baselines.get(row["Backbone"])) for row in rows]


def _overhead(row: Mapping[str, Any], baseline: Mapping[str, Any] | None) -> dict[str, Any]:
    if baseline is None or row is baseline:
        return {OVERHEAD: None}
    parts = [f"{100.0 * (row[name] / baseline[name] - 1.0):+.1f}%" for name in _TIMES]
    return {OVERHEAD: " / ".join(parts)}


def _megabytes(num_bytes: float | None) -> float | None:
    return None if num_bytes is None else num_bytes / _BYTES_A_MEGABYTE
