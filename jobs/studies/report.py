"""A study's report: one HTML file with the paper's numbers beside those of one's own runs."""

import math
from collections import Counter
from datetime import UTC, datetime
from xml.etree.ElementTree import Element

from jobs.studies.comparison import ComparedRow, compare, differences_sentence, is_by_column, reading
from jobs.studies.configuration import read_configuration, read_versions
from jobs.studies.definition import Scale, Study
from jobs.studies.figures import Panel, curve_panels, interval_figure
from jobs.studies.intervals import MeanInterval
from jobs.studies.markup import Child, element, page, section, table
from jobs.studies.numbers import TEXT_TABLE, disagreements, number_rows, printed, setting_gains
from jobs.studies.results import CellResult, StudyResults

_SCALE_WORDS = {
    Scale.CHAINS: "the built-in task chains with the embedded engine: a toy, whose scores are not those of the paper's "
    "benchmarks and say nothing about real models",
    Scale.PAPER: "the paper's models and data with the verl engine",
}
_DASH = "-"


def render_report(results: StudyResults, num_wanted: int) -> str:
    """Return the page of a study at one scale."""
    study = results.study
    return page(
        f"{study.title}: the paper and own runs",
        element("p", study.question),
        element("p", f"Own runs: {_SCALE_WORDS[results.scale]}."),
        element("p", _finished(results, num_wanted)),
        *_comparison(results),
        *_figures(results),
        *_own_numbers(results),
        *_paper_numbers(study),
        *_not_run(results),
        *_configuration(results),
        _versions(results),
        *_runs(results),
    )


def shown(value: float) -> str:
    """Return a number with as many decimals as its size calls for."""
    if math.isnan(value):
        return _DASH
    if value.is_integer() and abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3f}"


def interval_text(own: MeanInterval | None, is_difference: bool = False) -> str:
    """Return mean and half interval, the latter left out for a single seed."""
    if own is None:
        return _DASH
    sign = "+" if is_difference and own.mean > 0 else ""
    decimals = 1 if max(abs(own.mean), own.half if own.half == own.half else 0.0) >= 10 else 2
    if abs(own.mean) < 1 and not is_difference:
        decimals = 3
    end = "" if math.isnan(own.half) else f" ± {own.half:.{decimals}f}"
    return f"{sign}{own.mean:.{decimals}f}{end}"


def _finished(results: StudyResults, num_wanted: int) -> str:
    counts = [len(result.seeds) for result in results.cells]
    if not any(counts):
        return "No run has finished yet."
    return (
        f"Finished runs: {sum(counts)}, {min(counts)} to {max(counts)} seeds a cell; of the matrix of {num_wanted}, "
        f"{len(results.unfinished)} have not finished. Intervals are 95% intervals of Student's t over seeds; "
        f"differences to the baseline are paired by seed."
    )


def _comparison(results: StudyResults) -> list[Element]:
    """Set each row of the paper beside its cells, by the figures that the tables name or by the one for a whole run."""
    study, lines = results.study, compare(results)
    if not lines:
        return []
    if is_by_column(study):
        head = ["Paper's row", "Cell", "Column", "Paper", "Own", "Seeds"]
        by_column = [
            [line.place, line.cell, line.column, line.printed, interval_text(line.own), str(line.num_seeds)]
            for line in lines
        ]
        return [section("Beside the paper", table(head, by_column, 3))]
    main = f"Paper, {lines[0].column}"
    head = [
        "Paper's row",
        "Cell",
        main,
        "Difference",
        f"Own {results.main_figure}",
        "Difference",
        "Lowest seed",
        "Seeds",
    ]
    note = differences_sentence(study, results)
    rows = table(head, [_compared(item) for item in lines], 2)
    parts = [element("p", note, class_="soft"), rows, element("p", reading(results))]
    return [section("Beside the paper", *parts)]


def _compared(line: ComparedRow) -> list[str]:
    return [
        line.row,
        line.cell,
        line.printed,
        _DASH if line.printed_gain is None else f"{line.printed_gain:+.1f}",
        interval_text(line.own),
        interval_text(line.difference, is_difference=True),
        _DASH if line.own is None else shown(line.own.worst),
        str(line.num_seeds),
    ]


def _figures(results: StudyResults) -> list[Element]:
    name = results.main_figure
    done = [result for result in results.cells if result.seeds]
    if name is None:
        return []
    baseline = results.result_of(results.study.baseline)
    rows = [(result.cell.name, result.figures[name]) for result in done if name in result.figures]
    drawn = [
        element(
            "figure",
            interval_figure(rows, baseline.figures[name].mean if baseline and name in baseline.figures else None),
            element("figcaption", f"{name}: each seed (small), mean and 95% interval; dashed: the baseline's mean."),
        )
    ]
    panels = [Panel(item.cell.name, [seed.curve for seed in item.seeds], _means(item)) for item in done if item.curve]
    if panels:
        caption = "Held-out Avg@n in percent by step: seeds thin, their mean thick; dashed: the baseline's mean."
        drawn.append(
            element(
                "figure",
                curve_panels(panels, _means(baseline) if baseline else {}),
                element("figcaption", caption),
            )
        )
    return [section("Figures", *drawn)]


def _means(result: CellResult) -> dict[int, float]:
    return {step: value.mean for step, value in result.curve.items()}


def _own_numbers(results: StudyResults) -> list[Element]:
    done = [result for result in results.cells if result.figures]
    if not done:
        return []
    names = list(dict.fromkeys(name for result in done for name in result.figures))
    if len(names) > len(done) * 2:
        rows = [[name, *(interval_text(result.figures.get(name)) for result in done)] for name in names]
        return [section("Own numbers", table(["", *(result.cell.name for result in done)], rows))]
    rows = [
        [
            result.cell.name,
            *(interval_text(result.figures.get(name)) for name in names),
            interval_text(results.difference(result), is_difference=True),
        ]
        for result in done
    ]
    head = ["Cell", *names, f"{results.main_figure}, difference"]
    return [section("Own numbers", table(head, rows), *_own_gains(results))]


def _own_gains(results: StudyResults) -> list[Element]:
    """Return the gain in each setting that the study averages over, of own runs."""
    names = [
        name for name in results.study.gain_columns.values() if any(name in cell.figures for cell in results.cells)
    ]
    names = names or [name for name in [results.main_figure] if name is not None]
    rows = []
    for gain in results.study.gains:
        method, baseline = (results.result_of(name) for name in gain.cells)
        if method is not None and baseline is not None:
            paired = [results.paired(method, baseline, name) for name in names]
            rows.append([gain.setting, *(interval_text(item, is_difference=True) for item in paired)])
    if not rows:
        return []
    return [element("h3", "Gains by setting, of own runs"), table(["Stands for", *names], rows)]


def _paper_numbers(study: Study) -> list[Element]:
    parts: list[Child] = []
    for item in study.tables:
        rows = [[row.group, row.row, *(printed(value) for value in row.values)] for row in item.rows]
        parts += [element("h3", item.name), table(["Group", "Row", *item.columns], rows, 2)]
    texts = [[entry.row, entry.column, entry.printed] for entry in number_rows(study) if entry.table == TEXT_TABLE]
    if texts:
        parts += [element("h3", "In the text"), table(["", "", "Number"], texts, 2)]
    gains = setting_gains(study)
    if gains:
        columns = list(study.gain_columns)
        rows = [[gain.setting, *(f"{gain.gains[name]:+.1f}" for name in columns)] for gain in gains]
        means = [f"{sum(own.gains[name] for own in gains) / len(gains):+.2f}" for name in columns]
        parts += [element("h3", "Gains by setting"), table(["Setting", *columns], [*rows, ["Mean", *means]])]
    if not parts:
        parts = [element("p", "The paper prints no numbers of this.")]
    faults = [element("li", f"{disagreement.place}: {disagreement.sentence}.") for disagreement in disagreements(study)]
    if faults:
        parts += [element("h3", "Printed numbers that do not agree with each other"), element("ul", *faults)]
    return [section("What the paper prints", *parts)]


def _not_run(results: StudyResults) -> list[Element]:
    study = results.study
    lines = [*study.notes]
    lines += [
        f"{row.group + ': ' if row.group else ''}{row.row}: no cell stands for this row."
        for item in study.tables
        for row in item.rows
        if not row.cells
    ]
    absent = [cell.name for cell in study.cells if cell.recipe(results.scale) is None]
    if absent:
        lines.append(f"Not possible at this scale: {', '.join(absent)}.")
    states = Counter((key.cell, state) for key, state in results.unfinished)
    lines += [f"{cell}: {count} {'run' if count == 1 else 'runs'} {state}." for (cell, state), count in states.items()]
    other = Scale.PAPER if results.scale is Scale.CHAINS else Scale.CHAINS
    lines.append(f"This page holds no run at the scale {other}; `exgrpo study report` makes one of each.")
    return [section("What was not run, and what to know", element("ul", *(element("li", line) for line in lines)))]


def _configuration(results: StudyResults) -> list[Element]:
    found = read_configuration(results.cells)
    if not found.common:
        return []
    warnings = [element("p", sentence, class_="warn") for sentence in found.unequal]
    names = list(next(iter(found.by_cell.values())))
    rows = [[cell, *(fields[name] for name in names)] for cell, fields in found.by_cell.items()]
    apart = [table(["Cell", *names], rows, len(names) + 1)] if names else []
    common = table(["Field", "Value"], [[name, value] for name, value in found.common.items()], 2)
    return [
        section(
            "Configuration",
            *warnings,
            element("p", "What tells the cells apart, as the runs recorded it:"),
            *apart,
            element("details", element("summary", "Fields that all runs share"), common),
        )
    ]


def _versions(results: StudyResults) -> Element:
    ends = [seed.run.ended_at for result in results.cells for seed in result.seeds if seed.run.ended_at]
    rows = [[name, value] for name, value in read_versions().items()]
    made = f"Written {datetime.now(UTC):%Y-%m-%d %H:%M} UTC on the machine with these versions."
    if ends:
        made += f" The runs ended between {min(ends):%Y-%m-%d %H:%M} and {max(ends):%Y-%m-%d %H:%M} UTC."
    return section("Versions", element("p", made), table(["", ""], rows, 2))


def _runs(results: StudyResults) -> list[Element]:
    rows = [
        [result.cell.name, str(seed.seed), seed.run.run_id, *(shown(value) for value in [*seed.figures.values()][:1])]
        for result in results.cells
        for seed in result.seeds
    ]
    if not rows:
        return []
    head = ["Cell", "Seed", "Run", results.main_figure or ""]
    return [section("Runs", element("details", element("summary", "Every finished run"), table(head, rows, 3)))]
