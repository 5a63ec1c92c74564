"""A study's report: one HTML file with the paper's numbers beside those of one's own runs."""

import math
from collections import Counter
from datetime import UTC, datetime
from xml.etree.ElementTree import Element

from jobs.studies.configuration import read_configuration, read_versions
from jobs.studies.definition import PaperRow, PaperTable, Scale, Study, number_of
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
    study, name = results.study, results.main_figure
    if name is None or not study.tables:
        return []
    mapped = [own for own in study.tables if own.figures]
    if mapped:
        mapped_lines = [line for own in mapped for line in _mapped_rows(results, own)]
        head = ["Paper's row", "Cell", "Column", "Paper", "Own", "Seeds"]
        return [section("Beside the paper", table(head, mapped_lines, 3))]
    lines = [tuple(line) for own in study.tables for line in _whole_rows(results, own)]
    rows = list(dict.fromkeys(lines))  # a table may print a row twice, in two groups
    if not rows:
        return []
    main = f"Paper, {_main_column(study.tables[0])}"
    head = ["Paper's row", "Cell", main, "Difference", f"Own {name}", "Difference", "Lowest seed", "Seeds"]
    note = f"Differences are to the cell {study.baseline}{_other_baselines(results)}." if study.baseline else ""
    return [
        section("Beside the paper", element("p", note, class_="soft"), table(head, rows, 2), *_reading(results)),
    ]


def _other_baselines(results: StudyResults) -> str:
    """Name the cells that are compared with another cell than the study's baseline."""
    cells = [result.cell for result in results.cells if result.cell.baseline not in {None, result.cell.name}]
    return "".join(f", of {cell.name} to {cell.baseline}" for cell in cells)


def _main_column(paper_table: PaperTable) -> str:
    return [*paper_table.averages, paper_table.columns[0]][0]


def _done_cells(results: StudyResults, row: PaperRow) -> list[CellResult]:
    own = (results.result_of(name) for name in row.cells)
    return [result for result in own if result is not None and result.seeds]


def _whole_rows(results: StudyResults, paper_table: PaperTable) -> list[list[str]]:
    return [
        _compared(results, result, paper_table, (row, _base_row(results.study, paper_table, result)))
        for row in paper_table.rows
        for result in _done_cells(results, row)
    ]


def _base_row(study: Study, paper_table: PaperTable, result: CellResult) -> PaperRow | None:
    name = study.baseline_of(result.cell)
    return next((row for row in paper_table.rows if name in row.cells), None)


def _mapped_rows(results: StudyResults, paper_table: PaperTable) -> list[list[Child]]:
    rows: list[list[Child]] = []
    for row in paper_table.rows:
        for result in _done_cells(results, row):
            for column, name in paper_table.figures.items():
                own = result.figures.get(name.format(row=row.row.lower()))
                value = printed(row.values[paper_table.columns.index(column)])
                place = f"{row.group}, {row.row}" if row.group else row.row
                rows.append([place, result.cell.name, column, value, interval_text(own), str(len(result.seeds))])
    return rows


def _compared(
    results: StudyResults,
    result: CellResult,
    paper_table: PaperTable,
    rows: tuple[PaperRow, PaperRow | None],
) -> list[str]:
    row, base_row = rows
    index = paper_table.columns.index(_main_column(paper_table))
    value, base = (number_of(own.values[index]) if own is not None else None for own in (row, base_row))
    gain = None if value is None or base is None else value - base
    own = result.figures.get(results.main_figure or "")
    return [
        row.row,
        result.cell.name,
        printed(row.values[index]),
        _DASH if gain is None else f"{gain:+.1f}",
        interval_text(own),
        interval_text(results.difference(result), is_difference=True),
        _DASH if own is None else shown(own.worst),
        str(len(result.seeds)),
    ]


def _reading(results: StudyResults) -> list[Element]:
    """Say which differences the intervals tell from zero, whichever way they point."""
    differences = {result.cell.name: own for result in results.cells if (own := results.difference(result)) is not None}
    told = {name: own for name, own in differences.items() if not math.isnan(own.half)}
    if not told:
        return [element("p", "There are too few seeds to tell any cell from the baseline.")]
    above = [name for name, own in told.items() if own.mean - own.half > 0]
    below = [name for name, own in told.items() if own.mean + own.half < 0]
    rest = [name for name in told if name not in {*above, *below}]
    parts = [
        f"{words}: {', '.join(names)}."
        for words, names in (("Higher than the baseline", above), ("Lower", below), ("Not told apart from it", rest))
        if names
    ]
    parts.append(f"{len(told)} comparisons are made without correction, so one in twenty may look real by chance.")
    return [element("p", " ".join(parts))]


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
    panels = [Panel(own.cell.name, [seed.curve for seed in own.seeds], _means(own)) for own in done if own.curve]
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
    return {step: own.mean for step, own in result.curve.items()}


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
    names = [name for name in results.study.gain_columns.values() if any(name in own.figures for own in results.cells)]
    names = names or [name for name in [results.main_figure] if name is not None]
    rows = []
    for gain in results.study.gains:
        method, baseline = (results.result_of(name) for name in gain.cells)
        if method is not None and baseline is not None:
            paired = [results.paired(method, baseline, name) for name in names]
            rows.append([gain.setting, *(interval_text(own, is_difference=True) for own in paired)])
    if not rows:
        return []
    return [element("h3", "Gains by setting, of own runs"), table(["Stands for", *names], rows)]


def _paper_numbers(study: Study) -> list[Element]:
    parts: list[Child] = []
    for own in study.tables:
        rows = [[row.group, row.row, *(printed(value) for value in row.values)] for row in own.rows]
        parts += [element("h3", own.name), table(["Group", "Row", *own.columns], rows, 2)]
    texts = [[own.row, own.column, own.printed] for own in number_rows(study) if own.table == TEXT_TABLE]
    if texts:
        parts += [element("h3", "In the text"), table(["", "", "Number"], texts, 2)]
    gains = setting_gains(study)
    if gains:
        columns = list(study.gain_columns)
        rows = [[own.setting, *(f"{own.gains[name]:+.1f}" for name in columns)] for own in gains]
        means = [f"{sum(own.gains[name] for own in gains) / len(gains):+.2f}" for name in columns]
        parts += [element("h3", "Gains by setting"), table(["Setting", *columns], [*rows, ["Mean", *means]])]
    if not parts:
        parts = [element("p", "The paper prints no numbers of this.")]
    faults = [element("li", f"{own.place}: {own.sentence}.") for own in disagreements(study)]
    if faults:
        parts += [element("h3", "Printed numbers that do not agree with each other"), element("ul", *faults)]
    return [section("What the paper prints", *parts)]


def _not_run(results: StudyResults) -> list[Element]:
    study = results.study
    lines = [*study.notes]
    lines += [
        f"{row.group + ': ' if row.group else ''}{row.row}: no cell stands for this row."
        for own in study.tables
        for row in own.rows
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
    ends = [own.run.ended_at for result in results.cells for own in result.seeds if own.run.ended_at]
    rows = [[name, value] for name, value in read_versions().items()]
    made = f"Written {datetime.now(UTC):%Y-%m-%d %H:%M} UTC on the machine with these versions."
    if ends:
        made += f" The runs ended between {min(ends):%Y-%m-%d %H:%M} and {max(ends):%Y-%m-%d %H:%M} UTC."
    return section("Versions", element("p", made), table(["", ""], rows, 2))


def _runs(results: StudyResults) -> list[Element]:
    rows = [
        [result.cell.name, str(own.seed), own.run.run_id, *(shown(value) for value in [*own.figures.values()][:1])]
        for result in results.cells
        for own in result.seeds
    ]
    if not rows:
        return []
    head = ["Cell", "Seed", "Run", results.main_figure or ""]
    return [section("Runs", element("details", element("summary", "Every finished run"), table(head, rows, 3)))]
