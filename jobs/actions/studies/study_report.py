"""A study's report: one HTML page with the paper's numbers next to those of your runs, which loads nothing."""

import base64
import hashlib
import math
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from plotly.offline import get_plotlyjs
from plotly.subplots import make_subplots

from exgrpo.db.rows.spec_fields import SEED_FIELDS
from exgrpo.jobs.actions.studies.comparison import (
    WORDS,
    compare,
    comparison_table,
    coverage,
    differences_sentence,
    figures_table,
    gains_table,
    is_by_column,
    of_one_seed,
    own_gains_table,
    printed_table,
    reading,
    texts_table,
)
from exgrpo.jobs.actions.studies.numbers import disagreements
from exgrpo.jobs.actions.studies.study_results import CellResult, StudyResults
from exgrpo.jobs.machine.machine_report import package_versions

_FOLDER = Path(__file__).parent
_PAGES = Environment(
    loader=FileSystemLoader(_FOLDER), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)


def render_report(results: StudyResults, num_wanted: int) -> str:
    """Return the page of a study at one scale, about 5 MB where it has figures: it holds Plotly's library."""
    study, rows = results.study, compare(results)
    runs = [(result, seed) for result in results.cells for seed in result.seeds]
    by_column = is_by_column(study)
    return _PAGES.get_template("report.html.jinja").render(
        study=study,
        words=WORDS,
        scale=results.scale,
        progress=_progress(results, num_wanted),
        comparison=comparison_table(rows, by_column=by_column),
        differences="" if by_column else differences_sentence(study, results),
        reading="" if by_column else reading(results),
        figures=_figures(results),
        own_figures=figures_table(results),
        own_gains=own_gains_table(results) if runs else [],
        printed_tables=[(table.name, printed_table(table)) for table in study.tables],
        texts=texts_table(study),
        gains=gains_table(study),
        disagreements=disagreements(study),
        not_run=_not_run(results),
        written=_written(results),
        versions=[{"Package": name, "Version": version} for name, version in _versions().items() if version],
        runs=[
            {"Cell": result.cell.name, "Seed": seed.seed, "Run": seed.run.run_id}
            | {name: of_one_seed(seed.figures.get(name)) for name in [results.main_figure] if name}
            for result, seed in runs
        ],
        **_configuration(results.cells),
        **_scripts(),
    )


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
    cells = [result for result in results.cells if name in result.figures]
    figure = go.Figure(layout={"height": ROW_HEIGHT * len(cells) + MARGIN})
    draw_cells(figure, results, MEAN, SEED, BASELINE)
    figure.update_yaxes(showgrid=False)
    dotted, dashed = ("; dotted: the baseline's mean", "; dashed: the baseline's") if baseline else ("", "")
    drawn = [(f"{name}: each seed (small), mean and {BARS}{dotted}.", figure)]
    if panels := [result for result in results.cells if result.curve]:
        caption = f"Held-out Avg@n in percent by step: seeds thin, their mean thick{dashed}."
        drawn.append((caption, curve_panels(panels, _means(baseline) if baseline else {})))
    return [(caption, figure.to_plotly_json()) for caption, figure in drawn]


def _means(result: CellResult) -> dict[int, float]:
    return {step: value.mean for step, value in result.curve.items()}


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


_OWN_TO_A_RUN = SEED_FIELDS | {"name", "tags", "preset"}
_NOT_SET = "(not set)"


def _configuration(cells: Sequence[CellResult]) -> dict[str, object]:
    """Return what the finished runs were asked for, by their specifications: fields that all share, others by cell.

    With them come sentences on cells whose runs differ in more than the seed.
    """
    specs = {result.cell.name: [_flat(seed.spec) for seed in result.seeds] for result in cells if result.seeds}
    everything = [fields for spec in specs.values() for fields in spec]
    names = sorted({name for fields in everything for name in fields} - _OWN_TO_A_RUN)
    values = {name: {fields.get(name, _NOT_SET) for fields in everything} for name in names}
    differing = [name for name in names if len(values[name]) > 1]
    of_cells = {
        cell: {name: sorted({fields.get(name, _NOT_SET) for fields in spec}) for name in differing}
        for cell, spec in specs.items()
    }
    return {
        "common": [{"Field": name, "Value": next(iter(values[name]))} for name in names if len(values[name]) == 1],
        "by_cell": [
            {"Cell": cell} | {name: " or ".join(texts) for name, texts in fields.items()}
            for cell, fields in of_cells.items()
            if fields
        ],
        "unequal": [
            f"{cell}: its runs differ in {name}, so its interval is not only over seeds."
            for cell, fields in of_cells.items()
            for name, texts in fields.items()
            if len(texts) > 1
        ],
    }


def _versions() -> dict[str, str | None]:
    """Return the versions of this machine's Python and of the main packages, and its processor."""
    machine = f"{platform.system()} {platform.machine()}"
    return {"Python": platform.python_version(), "system": machine, **package_versions()}


def _flat(content: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    fields: dict[str, str] = {}
    for name, value in content.items():
        if isinstance(value, Mapping):
            fields |= _flat(value, f"{prefix}{name}.")
        else:
            fields[prefix + name] = "none" if value is None else str(value)
    return fields


MEAN, SEED, BASELINE = "#3b7ddd", "#8a94a6", "#8a94a6"
"""Colours that are seen on a white and on a dark page."""
ROW_HEIGHT, PANEL_HEIGHT, MARGIN = 26, 170, 60
PANELS_IN_ROW = 4
BARS = "95% interval over seeds, of one seed over questions"


def interval_bars(rows: Sequence[CellResult], name: str) -> dict[str, Any]:
    """Return plotly's error bars of a figure of cells; a cell without an interval has none."""
    means, ends = [row.figures[name].mean for row in rows], [row.ends(name) for row in rows]
    above = [None if math.isnan(high) else high - mean for mean, (_, high) in zip(means, ends, strict=True)]
    below = [None if math.isnan(low) else mean - low for mean, (low, _) in zip(means, ends, strict=True)]
    return {"type": "data", "symmetric": False, "array": above, "arrayminus": below}


def draw_cells(figure: go.Figure, results: StudyResults, mean: str, seed: str, baseline: str) -> None:
    """Draw the main figure of each cell in these colours: seeds, mean and interval, the baseline's mean as a line."""
    name = results.main_figure
    rows = [result for result in results.cells if name in result.figures][::-1]
    if name is None:
        return
    if (common := results.common_baseline) is not None:
        figure.add_vline(x=common.figures[name].mean, line={"color": baseline, "width": 1, "dash": "dot"})
    seeds = [(value, row.cell.name) for row in rows for value in row.figures[name].values]
    figure.add_scatter(
        x=[value for value, _ in seeds], y=[cell for _, cell in seeds], mode="markers", name="seed",
        marker={"color": seed, "size": 9, "symbol": "line-ns-open", "line": {"width": 1.5}},
        hovertemplate="%{y}: %{x:.1f}<extra>seed</extra>",
    )  # fmt: skip
    figure.add_scatter(
        x=[row.figures[name].mean for row in rows], y=[row.cell.name for row in rows], mode="markers", name="mean",
        marker={"color": mean, "size": 9, "symbol": "diamond"},
        error_x=interval_bars(rows, name) | {"color": mean}, hovertemplate="%{y}: %{x:.1f}<extra>mean</extra>",
    )  # fmt: skip
    figure.update_yaxes(type="category")


def curve_panels(panels: Sequence[CellResult], baseline: dict[int, float]) -> go.Figure:
    """Return small charts side by side on one scale: seeds thin, their mean thick, the baseline's mean dashed."""
    num_rows = math.ceil(len(panels) / PANELS_IN_ROW)
    cells: list[dict[str, str] | None] = [{}] * len(panels)
    cells += [None] * (PANELS_IN_ROW * num_rows - len(panels))
    figure = make_subplots(
        num_rows, PANELS_IN_ROW, specs=[cells[at : at + PANELS_IN_ROW] for at in range(0, len(cells), PANELS_IN_ROW)],
        subplot_titles=[panel.cell.name for panel in panels], horizontal_spacing=0.04, vertical_spacing=0.35 / num_rows,
    )  # fmt: skip
    for number, panel in enumerate(panels):
        lines = [("seed", seed.curve, {"color": SEED, "width": 1}, 0.45) for seed in panel.seeds]
        lines += [("baseline", baseline, {"color": BASELINE, "width": 1.5, "dash": "dash"}, 1.0)]
        lines += [("mean", _means(panel), {"color": MEAN, "width": 2}, 1.0)]
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
