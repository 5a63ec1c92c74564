"""A study's report: one HTML page with the paper's numbers next to those of your runs, which loads nothing."""

import base64
import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from statistics import fmean
from typing import Any

import plotly.graph_objects as go
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from plotly.offline import get_plotlyjs
from plotly.subplots import make_subplots

from jobs.actions.studies.comparison import (
    DASH,
    compare,
    coverage,
    differences_sentence,
    interval_text,
    is_by_column,
    number_text,
    read_configuration,
    read_versions,
    reading,
)
from jobs.actions.studies.definition import Scale, Study
from jobs.actions.studies.numbers import TEXT_TABLE, disagreements, number_rows, printed, setting_gains
from jobs.actions.studies.study_results import CellResult, StudyResults

_FOLDER = Path(__file__).parent
_SCALE_TEXTS = {
    Scale.CHAINS: "the built-in task chains with the embedded engine: a toy, whose scores are not those of the paper's "
    "benchmarks and say nothing about real models",
    Scale.REAL: "a small pretrained language model on English word problems with the embedded engine",
    Scale.PAPER: "the paper's models and data with the verl engine",
}


def render_report(results: StudyResults, num_wanted: int) -> str:
    """Return the page of a study at one scale, about 5 MB where it has figures: it holds Plotly's library."""
    study, done = results.study, [result for result in results.cells if result.figures]
    measured = list(dict.fromkeys(name for result in done for name in result.figures))
    return _template().render(
        study=study,
        results=results,
        scale_text=_SCALE_TEXTS[results.scale],
        progress=_progress(results, num_wanted),
        compared=compare(results),
        is_by_column=is_by_column(study),
        differences=differences_sentence(study, results),
        reading=reading(results),
        main_figure=results.main_figure,
        figures=_figures(results),
        done=done,
        names=measured,
        gains=_gains(results),
        gain_names=[name for name in study.gain_columns.values() if name in measured] or measured[:1],
        claims=[row for row in number_rows(study) if row.table == TEXT_TABLE],
        printed_gains=_printed_gains(study),
        disagreements=disagreements(study),
        not_run=_not_run(results),
        configuration=read_configuration(results.cells),
        written=_written(results),
        versions=read_versions(),
        runs=[(result.cell.name, seed) for result in done for seed in result.seeds],
        **_scripts(),
    )


@cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "interval": interval_text,
        "difference": partial(interval_text, is_difference=True),
        "number": number_text,
        "printed": printed,
        "signed": lambda value: DASH if value is None else f"{value:+z.1f}",
    }
    return environment.get_template("report.html.jinja")


@cache
def _scripts() -> dict[str, str]:
    """Return what a browser may run of the page, and the policy that lets it run that and load nothing."""
    scripts = {"plotly": get_plotlyjs(), "drawing": (_FOLDER / "report.js").read_text(encoding="utf-8")}
    digests = (hashlib.sha256(script.encode()).digest() for script in scripts.values())
    hashes = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src {hashes}"
    return {**scripts, "policy": policy}


def _progress(results: StudyResults, num_wanted: int) -> str:
    counts = [len(result.seeds) for result in results.cells]
    if not any(counts):
        return "No run has finished yet."
    paired = " Differences to the baseline are paired by seed." if results.study.baseline else ""
    return (
        f"Finished runs: {sum(counts)}, {min(counts)} to {max(counts)} seeds a cell; of the matrix of {num_wanted}, "
        f"{len(results.unfinished)} have not finished. {coverage(results)}{paired}"
    )


def _figures(results: StudyResults) -> list[tuple[str, dict[str, Any]]]:
    """Return captions and figures as Plotly's JSON."""
    name = results.main_figure
    if name is None:
        return []
    baseline = results.common_baseline
    done = [result for result in results.cells if result.seeds]
    rows = [result for result in done if name in result.figures]
    mean = baseline.figures[name].mean if baseline else None
    dashed = "; dashed: the baseline's mean" if baseline else ""
    drawn = [(f"{name}: each seed (small), mean and {BARS}{dashed}.", interval_figure(rows, name, mean))]
    panels = [Panel(item.cell.name, [seed.curve for seed in item.seeds], _means(item)) for item in done if item.curve]
    if panels:
        caption = f"Held-out Avg@n in percent by step: seeds thin, their mean thick{dashed}."
        drawn.append((caption, curve_panels(panels, _means(baseline) if baseline else {})))
    return [(caption, figure.to_plotly_json()) for caption, figure in drawn]


def _means(result: CellResult) -> dict[int, float]:
    return {step: value.mean for step, value in result.curve.items()}


def _gains(results: StudyResults) -> list[dict[str, Any]]:
    """Return the cells of each setting that the study averages over, where both can be run at this scale."""
    cells = [(gain.setting, *(results.result_of(name) for name in gain.cells)) for gain in results.study.gains]
    names = ("setting", "method", "baseline")
    return [dict(zip(names, item, strict=True)) for item in cells if None not in item]


def _printed_gains(study: Study) -> list[list[str]]:
    """Return the printed gain in each setting, and their mean, column by column."""
    gains, columns = setting_gains(study), list(study.gain_columns)
    rows = [[gain.setting, *(f"{gain.gains[name]:+z.1f}" for name in columns)] for gain in gains]
    means = [["Mean", *(f"{fmean(gain.gains[name] for gain in gains):+z.2f}" for name in columns)]] if gains else []
    return rows + means


def _not_run(results: StudyResults) -> list[str]:
    study = results.study
    lines = [*study.notes]
    lines += [
        f"{row.group + ': ' if row.group else ''}{row.row}: no cell runs this row."
        for item in study.tables
        for row in item.rows
        if not row.cells
    ]
    absent = [cell.name for cell in study.cells if cell.recipe(results.scale) is None]
    if absent:
        lines.append(f"Not possible at this scale: {', '.join(absent)}.")
    states = Counter((key.cell, state) for key, state in results.unfinished)
    lines += [f"{cell}: {count} {'run' if count == 1 else 'runs'} {state}." for (cell, state), count in states.items()]
    others = [scale.value for scale in study.scales if scale is not results.scale]
    if others:
        lines.append(
            f"Runs at the scale {' and '.join(others)} are on pages of their own: `exgrpo study report --scale`."
        )
    return lines


def _written(results: StudyResults) -> str:
    ends = [seed.run.ended_at for result in results.cells for seed in result.seeds if seed.run.ended_at]
    written = f"Written {datetime.now(UTC):%Y-%m-%d %H:%M} UTC on the machine with these versions."
    if ends:
        written += f" The runs ended between {min(ends):%Y-%m-%d %H:%M} and {max(ends):%Y-%m-%d %H:%M} UTC."
    return written


MEAN, SEED, BASELINE = "#3b7ddd", "#8a94a6", "#8a94a6"
"""Colours that are seen on a white and on a dark page."""
ROW_HEIGHT, PANEL_HEIGHT, MARGIN = 26, 170, 60
PANELS_IN_ROW = 4


@dataclass(frozen=True, slots=True)
class Panel:
    """One small chart of curves: each seed's and their mean, by step."""

    title: str
    seeds: Sequence[Mapping[int, float]]
    mean: Mapping[int, float]


BARS = "95% interval over seeds, of one seed over questions"


def interval_bars(rows: Sequence[CellResult], name: str) -> dict[str, Any]:
    """Return plotly's error bars of a figure of cells; a cell without an interval has none."""
    means, ends = [row.figures[name].mean for row in rows], [row.ends(name) for row in rows]
    above = [None if math.isnan(high) else high - mean for mean, (_, high) in zip(means, ends, strict=True)]
    below = [None if math.isnan(low) else mean - low for mean, (low, _) in zip(means, ends, strict=True)]
    return {"type": "data", "symmetric": False, "array": above, "arrayminus": below}


def interval_figure(rows: Sequence[CellResult], name: str, baseline: float | None) -> go.Figure:
    """Return one row a cell: seeds as small dots, mean and 95% interval, the baseline as a line."""
    labels, means = [row.cell.name for row in rows], [row.figures[name].mean for row in rows]
    seeds = [(row.cell.name, value) for row in rows for value in row.figures[name].values]
    figure = go.Figure(layout={"height": ROW_HEIGHT * len(rows) + MARGIN})
    figure.add_scatter(
        x=[value for _, value in seeds], y=[label for label, _ in seeds], name="seed", mode="markers",
        marker={"color": SEED, "size": 6, "opacity": 0.6},
    )  # fmt: skip
    figure.add_scatter(
        x=means, y=labels, name="mean", mode="markers", marker={"color": MEAN, "size": 9},
        error_x={"color": MEAN, "thickness": 2, **interval_bars(rows, name)},
    )  # fmt: skip
    if baseline is not None:
        figure.add_vline(x=baseline, line={"color": BASELINE, "dash": "dash", "width": 1})
    figure.update_traces(hovertemplate="%{y}: %{x:.1f}")
    figure.update_yaxes(type="category", autorange="reversed", showgrid=False)
    return figure


def curve_panels(panels: Sequence[Panel], baseline: Mapping[int, float]) -> go.Figure:
    """Return small charts side by side on one scale: seeds thin, their mean thick, the baseline's mean dashed."""
    num_rows = math.ceil(len(panels) / PANELS_IN_ROW)
    cells: list[dict[str, str] | None] = [{}] * len(panels)
    cells += [None] * (PANELS_IN_ROW * num_rows - len(panels))
    figure = make_subplots(
        num_rows, PANELS_IN_ROW, specs=[cells[at : at + PANELS_IN_ROW] for at in range(0, len(cells), PANELS_IN_ROW)],
        subplot_titles=[panel.title for panel in panels], horizontal_spacing=0.04, vertical_spacing=0.35 / num_rows,
    )  # fmt: skip
    for number, panel in enumerate(panels):
        lines = [("seed", curve, {"color": SEED, "width": 1}, 0.45) for curve in panel.seeds]
        lines += [("baseline", baseline, {"color": BASELINE, "width": 1.5, "dash": "dash"}, 1.0)]
        lines += [("mean", panel.mean, {"color": MEAN, "width": 2}, 1.0)]
        for name, curve, line, opacity in lines:
            steps = sorted(curve)
            figure.add_scatter(
                x=steps, y=[curve[step] for step in steps], name=name, mode="lines", line=line, opacity=opacity,
                row=number // PANELS_IN_ROW + 1, col=number % PANELS_IN_ROW + 1,
            )  # fmt: skip
    figure.update_traces(hovertemplate="step %{x}: %{y:.1f}")
    for number in range(2, len(panels) + 1):
        figure.layout[f"xaxis{number}"].matches = "x"
        figure.layout[f"yaxis{number}"].matches = "y"
    figure.update_annotations(font={"size": 12})
    figure.update_layout(height=PANEL_HEIGHT * num_rows + MARGIN)
    return figure
