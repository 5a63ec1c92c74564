"""Several runs as tables: settings in which they differ, final metrics, and what replay costs and saves."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import pandas as pd
import streamlit as st

from exgrpo.app.components.runs.comparison import Group, chart_of, differing, held_out_rows, mean_over
from exgrpo.app.components.widgets import data_table, run_state
from exgrpo.app.components.widgets.spec_text import option_text
from exgrpo.app.formats import escape_control_characters, in_percent
from exgrpo.app.queries.answers import ask
from exgrpo.app.queries.runs import Axis, axis_points
from exgrpo.db.queries import metrics, runs
from exgrpo.db.rows.display_names import FRESH_PASS_RATE, held_out_score
from exgrpo.db.rows.runs import RunRow
from exgrpo.db.rows.spec_fields import algorithm_settings, may_replay
from exgrpo.db.statistics import interval_text

_LAST = {
    "Entropy": "policy/entropy",
    "Mean tokens": "response/mean_tokens",
    "Buffer": "buffer/num_questions",
    "Retired": "buffer/num_retired",
    "Generated tokens": "tokens/generated_total",
}
_SCORE, _GAIN = held_out_score(), "Gain"
_ENDS, _GAIN_ENDS, _OVER_SEEDS = "95% interval", "Gain's 95% interval", "95% over seeds"
_LEAST = {FRESH_PASS_RATE: 0.0, _SCORE: 0.0, _GAIN: -100.0}
"""The least that these can be; the most is 100."""


def show_differences(names: Mapping[str, str], specs: Mapping[str, Mapping[str, object]]) -> None:
    """Show the fields in which the runs differ, one column per run."""
    columns = {escape_control_characters(names[run_id]): run_id for run_id in specs}
    rows = pd.DataFrame(
        [
            {"Field": path}
            | {name: escape_control_characters(option_text(values[run_id])) for name, run_id in columns.items()}
            for path, values in differing(specs).items()
        ]
    )
    data_table.show_titled("Settings that differ", rows, "settings-that-differ", "Settings in which the runs differ")
    if rows.empty:
        st.caption("None: these runs have the same settings.")


def show_results(
    drawn: Sequence[Group], runs: Mapping[str, RunRow], is_by_group: bool, recorded: Sequence[str] = ()
) -> None:
    """Show the final metrics of every run, or the means of every group of seeds, as far as some run has them.

    `recorded` are the metrics of runs that were recorded outside of the workbench.
    """
    single = {run_id: _result(row, recorded) for run_id, row in runs.items()}
    rows = pd.DataFrame(
        [
            group_result(group, single)
            if is_by_group
            else {"Run": escape_control_characters(group.name)} | single[group.run_ids[0]]
            for group in drawn
        ]
    ).dropna(axis="columns", how="all")
    number, text = st.column_config.NumberColumn, st.column_config.TextColumn
    columns = {name: number(format="%.1f%%") for name in map(str, rows) if name in {FRESH_PASS_RATE, _SCORE}} | {
        _GAIN: number(format="%+.1f", help="In points, since the first evaluation, on the same questions"),
        _ENDS: text(help="Of the held-out score, over questions, in percent"),
        _GAIN_ENDS: text(help="Over questions, in points"),
        "Entropy": number(format="%.3f", help="Nats per token"),
        "Mean tokens": number(format="%.1f"),
        "Buffer": number(help="Questions in the replay buffer"),
        "Generated tokens": number(format="localized", help="In all steps together; a branch counts its parent's"),
        "Minutes of steps": number(
            format="%.1f",
            help="Time of the training steps; a run's page shows the time from start to end as Time taken",
        ),
    }
    data_table.show_titled("Final metrics", rows, "comparison", "Newest scores and figures of every run", columns)


def _result(row: RunRow, recorded: Sequence[str]) -> dict[str, object]:
    held_out, gain = held_out_rows(row.run_id), ask(metrics.held_out_gain, row.run_id)
    last = ask(metrics.last_metrics, row.run_id)
    spent = axis_points(row.run_id, Axis.TIME)
    result: dict[str, object] = {
        "Method": escape_control_characters(row.method),
        "State": run_state.state_name(run_state.state_of(row)),
        "Steps": row.step,
        FRESH_PASS_RATE: in_percent(last.get("reward/pass_at_1_fresh")),
        _SCORE: in_percent(held_out[-1].avg_at_n if held_out else row.last_avg_at_n),
        _ENDS: (interval_text(held_out[-1].interval) if held_out else "") or None,
        "Questions": held_out[-1].num_questions if held_out else None,
        _GAIN: in_percent(gain.value) if gain else None,
        _GAIN_ENDS: (interval_text((gain.low, gain.high)) if gain else "") or None,
        **{name: last.get(key) for name, key in _LAST.items()},
        "Minutes of steps": spent[-1].value / 60 if spent else None,
    }
    titles = {key: escape_control_characters(chart_of(key).title) for key in recorded}
    given = [*result, *titles.values()]
    # A metric of the loop's may be called as a column, or as another metric is here.
    named = {key: title if given.count(title) == 1 else f"{title} ({key})" for key, title in titles.items()}
    return {name: last.get(key) for key, name in named.items()} | result


def group_result(group: Group, single: Mapping[str, Mapping[str, object]]) -> dict[str, object]:
    """Return the means of a group's runs, those of scores with their intervals over seeds."""
    rows = [single[run_id] for run_id in group.run_ids]
    means: dict[str, object] = {
        "Runs of": escape_control_characters(group.name),
        "Seeds": len(rows),
        "Method": rows[0]["Method"],
    }
    for name in rows[0]:
        if name in {"Method", "State", _ENDS, _GAIN_ENDS}:
            continue
        interval = mean_over([_number(values[name]) for values in rows])
        means[name] = interval and interval.mean
        if name in _LEAST:
            means[f"{name}, {_OVER_SEEDS}"] = (
                interval and interval_text(interval._replace(bounds=(_LEAST[name], 100.0)).ends(), scale=1)
            ) or None
    return means


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


OVERHEAD = "Overhead"
_ON_POLICY_METHODS = ("Dr.GRPO", "GRPO")
_STORED = {
    "Index, MB": ("buffer/memory_bytes", 1e6),
    "Files, MB": ("buffer/file_bytes", 1e6),
    "Trajectories": ("buffer/num_trajectories", 1),
}
_ALL_POINTS = 1_000_000
_TIMES = ("Peak step, s", "Min. step, s", "Avg. step, s")


def show_costs(drawn: Mapping[str, RunRow], names: Mapping[str, str], key: str = "costs") -> None:
    """Show one row per run by its name, and the overhead over the first on-policy run of the same backbone."""
    rows = overheads([cost for run_id, row in drawn.items() if (cost := costs(row, names[run_id])) is not None])
    number, text = st.column_config.NumberColumn, st.column_config.TextColumn
    columns = {
        "Index, MB": number(format="%.2f", help="The replay buffer's index in memory; tokens lie in files"),
        "Files, MB": number(format="%.1f", help="Stored trajectories: token ids and log-probs"),
        "Trajectories": number(format="localized", help="Stored trajectories of buffered questions"),
        **{name: number(format="%.2f") for name in _TIMES},
        "Fresh questions": number(format="%.1f", help="Questions of a step that replay nothing, mean over steps"),
        "Fresh rollouts": number(
            format="localized", help="Rollouts generated in all steps together; of a branch in its own steps"
        ),
        "Per step": number(format="%.1f", help="Fresh rollouts per step"),
        OVERHEAD: text(
            help="Largest, smallest and mean step time, relative to the first on-policy run with the same model"
        ),
        "Of on-policy": number(format="%.1f%%", help="Share of what on-policy training generates in as many steps"),
    }
    data_table.show_titled(
        "Memory, time per step and fresh rollouts", pd.DataFrame(rows), key,
        "Memory of the replay buffer, seconds per step and fresh rollouts of every run", columns,
    )  # fmt: skip
    if not rows:
        st.caption("No step has been recorded yet.")


def costs(row: RunRow, name: str) -> dict[str, Any] | None:
    """Return what a run's steps cost, sizes in MB and times in seconds; None of another program's or without times."""
    if row.is_recorded:
        return None
    series = ask(metrics.metric_series, row.run_id, ("seconds/step", "replay/share"), _ALL_POINTS)
    seconds, shares = ([point.value for point in points] for points in series.values())
    if not seconds:
        return None
    last, spec = ask(metrics.last_metrics, row.run_id), ask(runs.run_spec, row.run_id)
    settings = algorithm_settings(spec)
    num_fresh = _num_fresh(row)
    num_on_policy = settings["batch_size"] * settings["rollouts_per_question"] * len(seconds)
    replays = may_replay(spec)
    return {
        "Run": escape_control_characters(name),
        "Backbone": escape_control_characters(row.model),
        "Method": escape_control_characters(row.method),
        **{name: last[key] / unit if replays and key in last else None for name, (key, unit) in _STORED.items()},
        "Peak step, s": max(seconds),
        "Min. step, s": min(seconds),
        "Avg. step, s": fmean(seconds),
        "Fresh questions": settings["batch_size"] * (1.0 - fmean(shares)) if shares and row.has_settings else None,
        "Fresh rollouts": num_fresh,
        "Per step": None if num_fresh is None else num_fresh / len(seconds),
        "Of on-policy": 100.0 * num_fresh / num_on_policy if num_fresh is not None and row.has_settings else None,
    }


def _num_fresh(row: RunRow) -> float | None:
    """Return the rollouts that a run's own steps generated; None where they, or those before a branch, are unknown."""
    key = "rollouts/fresh_total"
    points = ask(metrics.metric_series, row.run_id, (key,), _ALL_POINTS, with_parents=True)[key]
    before = [point.value for point in points if point.step <= (row.branched_from_step or 0)]
    if not points or (row.branched_from_step and not before):
        return None
    return points[-1].value - (before[-1] if before else 0.0)


def overheads(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows, each that replays with its times in percent over the first on-policy row of its backbone."""
    baselines: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        if row["Method"] in _ON_POLICY_METHODS:
            baselines.setdefault(row["Backbone"], row)
    return [dict(row) | _overhead(row, baselines.get(row["Backbone"])) for row in rows]


def _overhead(row: Mapping[str, Any], baseline: Mapping[str, Any] | None) -> dict[str, Any]:
    if baseline is None or row is baseline:
        return {OVERHEAD: None}
    parts = [f"{100.0 * (row[name] / baseline[name] - 1.0):+z.1f}%" for name in _TIMES]
    return {OVERHEAD: " / ".join(parts)}
