"""Several runs side by side: groups that differ by seed only, settings that differ, curves on common axes."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import takewhile
from textwrap import shorten

import numpy as np
import plotly.graph_objects as go
import streamlit as st

from exgrpo.app import address, theme
from exgrpo.app.components.widgets import curve_view, curves, figures, own_charts
from exgrpo.app.components.widgets.curve_view import INTERVAL, SEEDS, TITLES, CurveView, Line, paired
from exgrpo.app.components.widgets.curves import Chart, Curve
from exgrpo.app.components.widgets.own_charts import OwnChart
from exgrpo.app.components.widgets.spec_text import option_text, setting_name
from exgrpo.app.formats import counted, escape_control_characters, literal
from exgrpo.app.queries.answers import ask
from exgrpo.app.queries.runs import axis_points, metric_series
from exgrpo.db.queries import metrics, runs
from exgrpo.db.rows.display_names import FRESH_PASS_RATE, held_out_score
from exgrpo.db.rows.runs import EvaluationRow, MetricPoint
from exgrpo.db.rows.sort_order import natural_order
from exgrpo.db.rows.spec_differences import flatten
from exgrpo.db.rows.spec_fields import SEED_FIELDS, is_unreadable
from exgrpo.db.statistics import MeanInterval, mean_interval
from exgrpo_core.step_report import METRIC_LABELS, METRICS, SHARES

_RECORDED_SEED = re.compile(r"config\.(?:.*[._])?seed", re.IGNORECASE)
"""The settings that runs recorded by loops have as seeds."""
_NOT_SETTINGS = frozenset({"name", "tags", "preset", "kind", "is_unreadable"})
_GRID_POINTS = 200
_MAX_NAMED, _MAX_CHARACTERS = 2, 30
"""Settings in the name of a group."""


@dataclass(frozen=True, slots=True)
class Group:
    """Runs that differ by seed only."""

    name: str
    run_ids: tuple[str, ...]


def groups(names: Mapping[str, str], specs: Mapping[str, Mapping[str, object]]) -> list[Group]:
    """Return the runs of `names` (by id) in groups of equal settings, seeds aside, in order of their first run."""
    by_settings: dict[str, list[str]] = {}
    for run_id in names:
        # Whether settings that cannot be read are equal is unknown.
        key = run_id if is_unreadable(specs[run_id]) else _settings(specs[run_id])
        by_settings.setdefault(key, []).append(run_id)
    members = list(by_settings.values())
    shared = [_shared_name([names[run_id] for run_id in run_ids]) for run_ids in members]
    alike = {
        name: [run_ids[0] for other, run_ids in zip(shared, members, strict=True) if other == name] for name in shared
    }
    found = [
        _apart(name, run_ids[0], {key: specs[key] for key in alike[name]})
        for name, run_ids in zip(shared, members, strict=True)
    ]
    return [
        Group(name if found.count(name) == 1 else f"{name} ({number})", tuple(run_ids))
        for number, (name, run_ids) in enumerate(zip(found, members, strict=True), start=1)
    ]


def _apart(name: str, run_id: str, alike: Mapping[str, Mapping[str, object]]) -> str:
    """Return a group's name, with the first settings in which groups of that name differ."""
    values = {path: of_run[run_id] for path, of_run in differing(alike).items() if not _is_seed(path)}
    texts = [
        f"{setting_name(path)} {shorten(option_text(value), _MAX_CHARACTERS, placeholder='…')}"
        for path, value in list(values.items())[:_MAX_NAMED]
    ]
    return f"{name} ({', '.join(texts)})" if texts else name


def differing(specs: Mapping[str, Mapping[str, object]]) -> dict[str, dict[str, object]]:
    """Return the fields in which specifications differ, each with its value in every run that has it."""
    flat = {run_id: flatten(spec) for run_id, spec in specs.items()}
    paths = dict.fromkeys(path for fields in flat.values() for path in fields if path not in _NOT_SETTINGS)
    values_by_path: dict[str, dict[str, object]] = {}
    for path in paths:
        values = {run_id: fields.get(path) for run_id, fields in flat.items()}
        if len({repr(value) for value in values.values()}) > 1:
            values_by_path[path] = values
    return values_by_path


def mean_line(lines: Sequence[Line]) -> Line | None:
    """Return the mean of several curves with their least and largest value, over the range that all of them cover."""
    lines = [line for line in lines if line.x.size]
    if len(lines) < 2:
        return lines[0] if lines else None
    lines = [Line(line.x[line.num_before :], line.y[line.num_before :]) for line in lines]
    if not all(line.x.size for line in lines):
        return None
    start, end = max(line.x[0] for line in lines), min(line.x[-1] for line in lines)
    positions = np.unique(np.concatenate([line.x for line in lines]))
    grid = positions[(positions >= start) & (positions <= end)]
    if grid.size > _GRID_POINTS:
        grid = np.linspace(start, end, _GRID_POINTS)
    values = np.stack([np.interp(grid, line.x, line.y) for line in lines])
    return Line(grid, values.mean(axis=0), values.min(axis=0), values.max(axis=0))


def describe_ends(groups: Sequence[Group], last_steps: Mapping[str, int]) -> list[str]:
    """Return where means over seeds end before some of their runs do, a sentence a group, or that there are none."""
    if all(len(group.run_ids) == 1 for group in groups):
        return ["No two of these runs have the same settings but for their seeds, so each curve is one run."]
    sentences = []
    for group in groups:
        ends = sorted(last_steps[run_id] for run_id in group.run_ids)
        if ends[0] < ends[-1]:
            steps = f"{', '.join(f'{end:,}' for end in ends[:-1])} and {ends[-1]:,}"
            sentences.append(
                f"{group.name}: its runs end at steps {steps}. The mean ends at {ends[0]:,}; the final figures "
                "below are means of each run's own last values."
            )
    return sentences


def mean_over(values: Sequence[float | None]) -> MeanInterval | None:
    """Return the mean of the known values of several runs with its 95% interval; None without any."""
    finite = [value for value in values if value is not None and math.isfinite(value)]
    return mean_interval(finite) if finite else None


def _settings(spec: Mapping[str, object]) -> str:
    fields = flatten(spec).items()
    return repr(sorted(item for item in fields if item[0] not in _NOT_SETTINGS and not _is_seed(item[0])))


def _is_seed(path: str) -> bool:
    return path in SEED_FIELDS or _RECORDED_SEED.fullmatch(path) is not None


def _shared_name(names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    alike = takewhile(lambda characters: len(set(characters)) == 1, zip(*names, strict=False))
    shared = re.sub(
        r"(?:\s\([^()]*)?[\s,._+@(-]*(?:seed)?[\s,._+@(-]*$", "", "".join(characters[0] for characters in alike)
    )
    return shared or names[0]


HELD_OUT = "held_out"
MAX_RECORDED = 12
"""Charts of runs that have metrics of their own, next to each other."""
MAX_OWN = 24
"""Those of one run."""
HIDDEN = "hide"


QUANTITIES = (
    Chart(FRESH_PASS_RATE, "share of rollouts", (Curve("reward/pass_at_1_fresh"),), is_share=True),
    Chart(held_out_score(), "share", (Curve(HELD_OUT),), is_share=True, starts_at_zero=False),
    Chart("Entropy", "nats per token, fresh rollouts", (Curve("policy/entropy"),)),
    Chart("Response length", "tokens, fresh rollouts", (Curve("response/mean_tokens"),)),
    Chart("Replay buffer", "questions", (Curve("buffer/num_questions"),)),
    Chart("Retired set", "questions", (Curve("buffer/num_retired"),)),
    Chart("Gradient norm", "before clipping", (Curve("optim/gradient_norm"),)),
    Chart("Time of a step", "seconds", (Curve("seconds/step"),)),
)
_BY_KEY = {curve.key: chart for chart in QUANTITIES for curve in chart.curves}
KEYS = tuple(_BY_KEY)
MORE = tuple(sorted(METRICS.keys() - _BY_KEY.keys()))


def recorded_keys(run_ids: Sequence[str]) -> list[str]:
    """Return the first metrics that runs recorded outside of the workbench have, those that are known here first."""
    found = {key for run_id in run_ids for key in ask(metrics.last_metrics, run_id)}
    if len(found) > MAX_RECORDED:
        st.caption(f"{MAX_RECORDED} of {len(found):,} metrics are drawn; **All steps** exports each of them.")
    return sorted(found, key=lambda key: (key not in METRICS, natural_order(key)))[:MAX_RECORDED]


def own_charts_of(run_id: str) -> list[Chart]:
    """Return a chart of each metric that a run recorded outside of the workbench has and Run draws nowhere else."""
    found = ask(metrics.last_metrics, run_id)
    drawn = {*curves.KEYS, *METRICS} - ({"reward/mean"} if "reward/pass_at_1" not in found else set())
    return [chart_of(key) for key in sorted(found, key=natural_order) if key not in drawn]


def chart_of(key: str) -> Chart:
    """Return the chart of one metric, with the title and unit of its chart on Run where it has one."""
    for chart in curves.CHARTS:
        for curve in chart.curves:
            if curve.key == key and key not in _BY_KEY:
                title = chart.title if len(chart.curves) == 1 else f"{chart.title}: {curve.name}"
                return Chart(title, chart.unit, (curve,), is_share=chart.is_share)
    return _BY_KEY.get(key) or Chart(
        METRIC_LABELS.get(key, key), METRICS.get(key, ""), (Curve(key),), is_share=key in SHARES
    )


def show(
    drawn: Sequence[Group], view: CurveView, keys: Sequence[str], own: Sequence[OwnChart] = (),
    folded: Sequence[str] = (),
) -> None:  # fmt: skip
    """Show the legend and a chart a metric in two columns, then the reader's own, and further metrics `folded`.

    A group of several runs is a mean within its range, a held-out score of one run within its 95% interval.
    """
    hidden = legend(drawn)
    run_ids = [run_id for group in drawn for run_id in group.run_ids]
    views = {
        run_id: replace(
            view, axis_points=axis_points(run_id, view.axis),
            branched_from=row.branched_from_step if (row := ask(runs.get_run, run_id)) else None,
        )
        for run_id in run_ids
    }  # fmt: skip
    of_own = [key for chart in own for key in (*chart.keys, chart.over) if key]
    series = {run_id: series_of(run_id, [*keys, *folded, *of_own]) for run_id in run_ids}

    def line_of(index: int, key: str, over: str | None = None) -> Line | None:
        group = drawn[index]
        if group.name in hidden:
            return None
        if over is not None:
            run_id = group.run_ids[0]
            return mean_line([paired(views[run_id].own(series[run_id][key]), series[run_id][over])])
        if key == HELD_OUT and len(group.run_ids) == 1:
            return with_intervals(views[group.run_ids[0]], held_out_rows(group.run_ids[0], with_parents=True))
        return mean_line([views[run_id].line(series[run_id][key]) for run_id in group.run_ids])

    names = [group.name for group in drawn]
    lines = {key: [line_of(index, key) for index in range(len(drawn))] for key in (*keys, *folded)}
    view = view.spanning(line for of_key in lines.values() for line in of_key)

    def card(key: str) -> None:
        chart = chart_of(key)
        figures.show_card(
            chart.title, chart.unit + bands(lines[key]), figure_of(names, lines[key], view, chart),
            f"compare-{key}-{view.axis}",
            f"{chart.title} of every run against {TITLES[view.axis]}",
        )  # fmt: skip

    with figures.grid("compare"):
        for key in keys:
            card(key)
        for number, chart in enumerate(own, start=len(keys)):
            own_charts.show(chart, names, line_of, view, f"compare-own-{number}-{view.axis}")
    if folded:
        with st.expander(f"Others · {counted(len(folded), 'chart')}", key="compare-others"), figures.grid("others"):
            for key in folded:
                card(key)


def bands(lines: Sequence[Line | None]) -> str:
    """Return in words what the bands of some curves are, after their unit."""
    found = {line.band for line in lines if line is not None and line.low is not None}
    words = {INTERVAL: "one run: 95% interval over questions", SEEDS: "several: from the least to the largest seed"}
    return f"; band of {' and of '.join(words[band] for band in words if band in found)}" if found else ""


def with_intervals(view: CurveView, rows: Sequence[EvaluationRow]) -> Line:
    """Return one run's held-out score within its 95% interval."""
    line = view.line([MetricPoint(row.step, row.avg_at_n) for row in rows])
    low, high = np.array([row.interval for row in rows], dtype=np.float64).reshape(-1, 2).T
    return replace(line, low=low, high=high, band=INTERVAL)


def legend(drawn: Sequence[Group]) -> set[str]:
    """Show each name after a piece of its curve, as a button that hides it and shows it; return the hidden ones."""
    wanted = set(st.query_params.get(HIDDEN, "").split(","))
    hidden = {group.name for group in drawn if group.run_ids[0] in wanted}
    rules = []
    with st.container(horizontal=True, gap="small", key="legend"):
        for index, group in enumerate(drawn):
            look, is_hidden = theme.look_of_run(index), group.name in hidden
            line = f"content:'';width:1.6rem;margin-right:.4rem;border-top:3px {theme.DASHES[look.dash]} {look.colour}"
            rules.append(f".st-key-legend-{index} button::before{{{line}}}")
            if is_hidden:
                rules.append(f".st-key-legend-{index} button{{opacity:.45;text-decoration:line-through}}")
            st.button(
                literal(group.name), key=f"legend-{index}", type="tertiary", on_click=_toggle, args=(group.run_ids[0],),
                help="Show this curve again" if is_hidden else "Hide this curve in all charts",
            )  # fmt: skip
        st.html(f"<style>{''.join(rules)}</style>")
    return hidden


def _toggle(run_id: str) -> None:
    hidden = [name for name in st.query_params.get(HIDDEN, "").split(",") if name]
    hidden = [name for name in hidden if name != run_id] if run_id in hidden else [*hidden, run_id]
    address.put({HIDDEN: ",".join(hidden) or None})


def figure_of(names: Sequence[str], lines: Sequence[Line | None], view: CurveView, chart: Chart) -> go.Figure | None:
    """Return one curve per name, with its range where it is a mean of several runs; None without any value."""
    if not any(line is not None for line in lines):
        return None
    figure = figures.new_figure()
    for index, (name, line) in enumerate(zip(names, lines, strict=True)):
        if line is not None:
            label = escape(escape_control_characters(name))
            figures.add_line(figure, label, line, theme.look_of_run(index), view, is_share=chart.is_share)
    figures.show_left_out_only(figure)
    curves.use_axis_of(figure, chart)
    curve_view.dress(figure, view)
    return figure


def series_of(run_id: str, keys: Sequence[str]) -> Mapping[str, list[MetricPoint]]:
    """Return metrics of a run, and its held-out score; of a branch also before it."""
    recorded = [key for key in dict.fromkeys(keys) if key != HELD_OUT]
    return metric_series(run_id, recorded, with_parents=True) | {
        HELD_OUT: [MetricPoint(row.step, row.avg_at_n) for row in held_out_rows(run_id, with_parents=True)]
    }


def held_out_rows(run_id: str, *, with_parents: bool = False) -> list[EvaluationRow]:
    """Return the evaluations of a run on held-out questions, oldest first, if asked with those before a branch."""
    rows = ask(metrics.list_evaluations, run_id, with_parents=with_parents)
    return [row for row in rows if row.question_set == HELD_OUT]
