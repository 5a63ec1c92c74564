"""An entry drawn from runs, by the components of the pages where it lives."""

import html
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from exgrpo.app import theme
from exgrpo.app.components.benchmarks import backbone_bars, score_table, score_table_view
from exgrpo.app.components.chains_of_thought import case_view, code_view, thought_charts
from exgrpo.app.components.paper.entries import Drawing, Entry
from exgrpo.app.components.paper.run_selection import PRINTED, REPLAYING, RunSelection
from exgrpo.app.components.replay_buffer import buffer_over_steps
from exgrpo.app.components.runs import comparison, comparison_tables
from exgrpo.app.components.runs.comparison import Group
from exgrpo.app.components.widgets import curves, figures, grid, notice
from exgrpo.app.components.widgets.curve_view import WHOLE
from exgrpo.app.components.widgets.spec_text import option_text
from exgrpo.app.formats import escape_control_characters, literal
from exgrpo.app.queries.answers import ask
from exgrpo.app.queries.benchmarks import list_scores
from exgrpo.app.queries.runs import metric_series
from exgrpo.db.queries import code_analysis, runs
from exgrpo.db.queries.cases import find_cases
from exgrpo.db.rows.runs import RunRow
from exgrpo.db.rows.spec_differences import flatten
from exgrpo.jobs.evaluation.analysis.report import tabulate_validity
from exgrpo.jobs.specs.train import load_preset

_SCHEME = "paper"
_PAPER_PRESET = "paper-exgrpo"
_WITHOUT_RUNS = ("backbones", "rules", "settings")
_SETTING_GROUPS = ("algorithm", "optim", "num_steps")
_PER_RUN = 34


def show(entry: Entry, selection: RunSelection) -> None:
    """Show the entry's figure of the selected runs, or in a sentence what is missing for it."""
    if entry.drawing == "method":
        show_overview(selection.first.run_id if selection.first else None)
    elif entry.drawing in _WITHOUT_RUNS:
        _DRAWINGS[entry.drawing](entry, selection)
    elif selection.kind == PRINTED:
        st.caption("Choose runs above to draw the same of your own data.")
    elif not selection.rows:
        notice.show_empty(
            "show_chart", "No such runs yet", "Choose other runs above, or start some under **New run**.",
            "exgrpo demo",
        )  # fmt: skip
    else:
        _DRAWINGS[entry.drawing](entry, selection)


def _scores(entry: Entry, selection: RunSelection) -> None:
    measured = score_table.measured_lines(list_scores(_SCHEME))
    chosen = [line for line in measured if line.source_run_id in selection.rows]
    lines = score_table.with_columns(chosen, score_table.COLUMNS)
    if lines:
        score_table_view.show(score_table.rank(lines), "paper-scores")
    figure = held_out_bars(selection)
    figures.show_card(
        "Held-out questions", "Avg@n with 95% interval, last evaluation", figure, f"measured-{entry.key}",
        "Bars: the last held-out score of each run with its interval",
    )  # fmt: skip
    if not lines:
        st.caption(
            "None of these runs is scored on the paper's benchmarks yet; **Benchmarks** starts that for a checkpoint."
        )


def _curves(entry: Entry, selection: RunSelection) -> None:
    groups = [Group(selection.names[run_id], (run_id,)) for run_id in selection.rows]
    comparison.show(groups, WHOLE, entry.quantities)


def _buffer(_entry: Entry, selection: RunSelection) -> None:
    share = curves.EVER_SOLVED
    replaying = [run_id for run_id, row in selection.rows.items() if row.method == REPLAYING]
    for run_id in replaying or list(selection.rows):
        name = selection.names[run_id]
        series = metric_series(run_id, (*buffer_over_steps.KEYS, *(curve.key for curve in share.curves)))
        st.markdown(f"**{literal(name)}**")
        with figures.grid(run_id):
            buffer_over_steps.show_area(series, f"paper-buffer-{run_id}")
            curves.show(share, series, f"paper-{run_id}")


def _bounds(_entry: Entry, selection: RunSelection) -> None:
    charts = (curves.VARIANCE_BOUNDS, curves.TRAJECTORY_WEIGHTS)
    row = _first(selection)
    series = metric_series(row.run_id, [curve.key for chart in charts for curve in chart.curves])
    with figures.grid("bounds"):
        for chart in charts:
            curves.show(chart, series, "paper")
    st.markdown("\n".join(f"- **{name}** {text}" for name, text in curves.BOUNDS.items()))
    st.markdown(curves.TRAJECTORY_WEIGHTS.explanation)


def _validity(entry: Entry, selection: RunSelection) -> None:
    groups = {
        "validity": thought_charts.VALIDITY,
        "valid_by_difficulty": thought_charts.VALID_BY_DIFFICULTY,
    }[entry.drawing]
    sample = ask(code_analysis.entropy_points, _first(selection).run_id, None)
    thought_charts.show_sampling(sample)
    figures.show_card(
        entry.title, "density over correct answers", thought_charts.densities_of(sample.points, groups, "mean_entropy"),
        f"measured-{entry.key}", f"Densities of mean token entropy: {', '.join(group.name for group in groups)}",
    )  # fmt: skip


def _signals(_entry: Entry, selection: RunSelection) -> None:
    sample = ask(code_analysis.entropy_points, _first(selection).run_id, None)
    lines = tabulate_validity(sample.points)
    with figures.grid("signals"):
        for name in ("entropy", "perplexity"):
            figures.show_card(
                f"Mean {name}", "of valid and invalid chains", thought_charts.mean_signals(lines, name),
                f"measured-{name}",
                f"Bars: mean {name} of valid and invalid chains of thought by difficulty",
            )  # fmt: skip


def _cases(_entry: Entry, selection: RunSelection) -> None:
    cases = ask(find_cases, _first(selection).run_id, None, limit=1)
    if cases:
        case_view.show_all(cases, {}, "paper")
    else:
        st.caption("This run has no question with two correct answers of different entropy yet.")


def _rules(_entry: Entry, selection: RunSelection) -> None:
    counts = ask(code_analysis.rule_counts, _first(selection).run_id) if selection.rows else ()
    code_view.show_rules(counts)


def _settings(_entry: Entry, selection: RunSelection) -> None:
    """Show one row a hyperparameter: the paper's value by the preset of its main run, and each run's."""
    columns: dict[str, Mapping[str, object]] = {"Paper": load_preset(_PAPER_PRESET).model_dump(mode="json")}
    for run_id, name in selection.names.items():
        columns[escape_control_characters(name)] = ask(runs.run_spec, run_id)
    flat = {name: flatten({key: spec[key] for key in _SETTING_GROUPS if key in spec}) for name, spec in columns.items()}
    frame = pd.DataFrame(
        [
            dict[str, object](Field=path)
            | {
                name: escape_control_characters(option_text(fields[path])) if path in fields else None
                for name, fields in flat.items()
            }
            for path in flat["Paper"]
        ]
    )
    grid.draw(frame, "hyperparameters", "Hyperparameters of the paper and of these runs")


def _counts(entry: Entry, selection: RunSelection) -> None:
    rows = []
    for run_id, name in selection.names.items():
        [points] = metric_series(run_id, entry.quantities).values()
        mean = sum(point.value for point in points) / len(points) if points else None
        rows.append({"Run": escape_control_characters(name), "# Avg. Mini-Batch": mean})
    number = st.column_config.NumberColumn(format="%.2f")
    alt = "Mean number of questions per mini-batch"
    grid.draw(pd.DataFrame(rows), "mini-batches", alt, {"# Avg. Mini-Batch": number})
    _curves(entry, selection)


def _first(selection: RunSelection) -> RunRow:
    row = selection.first
    if row is None:
        raise LookupError("a selection of runs is empty")
    if len(selection.rows) > 1:
        st.caption(f"From the run {literal(selection.names[row.run_id])}.")
    return row


_DRAWINGS: dict[Drawing, Callable[[Entry, RunSelection], None]] = {
    "scores": _scores,
    "backbones": lambda *_: backbone_bars.show(score_table.measured_lines(list_scores(_SCHEME))),
    "curves": _curves,
    "buffer": _buffer,
    "bounds": _bounds,
    "validity": _validity,
    "valid_by_difficulty": _validity,
    "signals": _signals,
    "code": lambda _, chosen: code_view.show_code(ask(code_analysis.code_lines, _first(chosen).run_id, None), None),
    "cases": _cases,
    "rules": _rules,
    "settings": _settings,
    "costs": lambda _, chosen: comparison_tables.show_costs(chosen.rows, chosen.names, "paper-costs"),
    "counts": _counts,
}


def held_out_bars(selection: RunSelection) -> go.Figure | None:
    """Return one bar a run with its 95% interval; None where no run has held-out questions."""
    last = {run_id: rows[-1] for run_id in selection.rows if (rows := comparison.held_out_rows(run_id))}
    if not last:
        return None
    figure = figures.new_figure(
        _PER_RUN * len(last) + 80, "held-out score", y={"type": "category"}, hovermode="closest", showlegend=False,
        x={"tickformat": ".0%", "showgrid": True, "rangemode": "tozero"}, bargap=0.35,
    )  # fmt: skip
    run_ids = list(last)[::-1]
    colours = theme.palette()
    figure.add_trace(
        go.Bar(
            orientation="h",
            y=[html.escape(escape_control_characters(selection.names[run_id])) for run_id in run_ids],
            x=np.array([last[run_id].avg_at_n for run_id in run_ids], dtype=np.float32),
            error_x=figures.reaches(
                [(last[run_id].avg_at_n, *last[run_id].interval) for run_id in run_ids], color=colours.text, thickness=1
            ),
            marker={"color": colours.held_out, "cornerradius": 3}, hovertemplate="%{y}: %{x:.1%}<extra></extra>",
        )
    )  # fmt: skip
    return figure


_BUFFER, _TRAJECTORIES = (("view", "Buffer"),), (("view", "Trajectories"),)
_STEP = (("view", "Step"),)
PHASES = "(a) Experience management", "(b) Policy optimization"


@dataclass(frozen=True, slots=True)
class Box:
    """One part of the method, and the parameters of the run's page that shows it."""

    phase: str
    title: str
    text: str
    query: tuple[tuple[str, str], ...] = ()


BOXES = (
    Box(PHASES[0], "Questions D", "fresh ones, none retired", _TRAJECTORIES),
    Box(PHASES[0], "Replay buffer E", "successes by question", (*_BUFFER, ("part", "Over time"))),
    Box(PHASES[0], "Buckets by Acc", "latest correctness k/K", _BUFFER),
    Box(PHASES[0], "Medium first", "p ∝ N(Acc; 0.5, 1)", _STEP),
    Box(PHASES[0], "Lowest entropy o*", "under the policy now", _STEP),
    Box(PHASES[0], "K or K-1 rollouts", "verified rewards", _TRAJECTORIES),
    Box(PHASES[0], "Keep successes", "1 to K-1 correct", (*_TRAJECTORIES, ("outcome", "correct"))),
    Box(PHASES[0], "Retired set S", "solved K of K", (*_BUFFER, ("part", "Flow"))),
    Box(PHASES[1], "Mixed mini-batch", "fresh and replayed groups"),
    Box(PHASES[1], "Objective", "w·Â fresh, f(w*)·Â replayed"),
    Box(PHASES[1], "Policy π", "writes the next rollouts"),
)


def show_overview(run_id: str | None) -> None:
    """Show both phases side by side; links open this run's page, where there is a run."""
    for column, phase in zip(st.columns(2), PHASES, strict=True):
        with column.container(border=True, height="stretch", gap="xsmall"):
            st.markdown(f"**{phase}**")
            for box in BOXES:
                if box.phase == phase:
                    query = dict(box.query) | ({"run": run_id} if run_id else {})
                    st.page_link("app_pages/run.py", label=f"**{box.title}**: {box.text}", query_params=query)
