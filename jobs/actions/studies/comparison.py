"""A study's own figures next to the paper's numbers, as tables of texts and in sentences."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from exgrpo.db.statistics import CONFIDENCE, MeanInterval, holm, mean_interval
from exgrpo.jobs.actions.studies.definition import PaperRow, PaperTable, Study, number_of
from exgrpo.jobs.actions.studies.numbers import printed, setting_gains
from exgrpo.jobs.actions.studies.study_results import CellResult, StudyResults

_MAX_NAMED = 10


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """One number of the paper, and the result of a cell that represents its row."""

    table: str
    group: str
    row: str
    column: str
    cell: str
    printed: str
    printed_gain: float | None
    """The paper's number minus that of its row for the cell's baseline; None where a row is no score of a method."""
    own: MeanInterval | None
    difference: MeanInterval | None
    """The cell's figure minus its baseline's, paired by seed."""
    num_seeds: int

    @property
    def full_row(self) -> str:
        """The row with the heading above it."""
        return f"{self.group}, {self.row}" if self.group else self.row


def compare(results: StudyResults) -> list[ComparedRow]:
    """Set each row of the paper next to its cells that have runs.

    Where tables name figures of a run, these are set next to their columns. Else the figure for a whole run is set
    next to the main column, and a row that the paper prints in two groups is listed once.
    """
    is_mapped = is_by_column(results.study)
    tables = [table for table in results.study.tables if table.figures or (results.main_figure and not is_mapped)]
    rows = [row for table in tables for row in _compared_rows(results, table)]
    if is_mapped:
        return rows
    distinct: dict[tuple[str, ...], ComparedRow] = {}
    for row in rows:
        distinct.setdefault((row.table, row.row, row.cell, row.printed), row)
    return list(distinct.values())


def is_by_column(study: Study) -> bool:
    """Return whether a study's rows are compared column by column, not by one figure for a whole run."""
    return any(table.figures for table in study.tables)


def differences_sentence(study: Study, results: StudyResults) -> str:
    """Return one sentence on the cells that differences are to, "" for a study without a baseline."""
    if not study.baseline:
        return ""
    cells = [result.cell for result in results.cells if result.cell.baseline not in {None, result.cell.name}]
    if len(cells) > _MAX_NAMED:
        return f"Each difference is to the baseline of the same settings, such as {study.baseline}."
    others = "".join(f", of {cell.name} to {cell.baseline}" for cell in cells)
    return f"Differences are to the cell {study.baseline}{others}."


def coverage(results: StudyResults) -> str:
    """Return in sentences what the intervals of a study cover."""
    warm = {seed.spec["model"].get("warm_seed", 0) for result in results.cells for seed in result.seeds}
    text = "Intervals are 95% intervals of Student's t over seeds: of other seeds and samples, not other questions."
    if len(warm) <= 1:
        return text
    return (
        f"{text} The runs share {len(warm)} warm models: for other warm models the intervals of means are too narrow; "
        "what a warm model adds to all cells cancels in paired differences."
    )


def reading(results: StudyResults) -> str:
    """Return in sentences which differences are not chance by Holm's correction at 5%, and on which side.

    Cells with the same runs as another, or the same difference at every seed, are named and not counted. It is "" for a
    study without a baseline.
    """
    if not any(results.study.baseline_of(result.cell) for result in results.cells):
        return ""
    differences = {result.cell.name: results.difference(result) for result in results.cells}
    same = _same_runs(results)
    parts = [f"{name}: the same runs as {other}." for name, other in same.items()]
    others = {name: value for name, value in differences.items() if name not in same and value is not None}
    intervals = {name: value for name, value in others.items() if not math.isnan(value.half)}
    parts += [
        f"{name}: the same difference at every seed, so it has no interval."
        for name, value in others.items()
        if name not in intervals and len(value.values) > 1
    ]
    if not intervals:
        return " ".join(parts) or "There are too few seeds to distinguish any cell from the baseline."
    corrected = zip(intervals.items(), holm([value.p_value for value in intervals.values()]), strict=True)
    real = {name: value.mean for (name, value), p_value in corrected if p_value < 1 - CONFIDENCE}
    above = [name for name, mean in real.items() if mean > 0]
    below = [name for name, mean in real.items() if mean < 0]
    rest = [name for name in intervals if name not in {*above, *below}]
    parts += [
        f"{words}: {', '.join(names)}."
        for words, names in (
            ("Higher than the baseline", above),
            ("Lower", below),
            ("Not distinguishable from it", rest),
        )
        if names
    ]
    parts.append(
        f"By Student's t over seeds at 5%, with Holm's correction (cells compared: {len(intervals)}), unlike intervals."
    )
    return " ".join(parts)


def _same_runs(results: StudyResults) -> dict[str, str]:
    """Return the cells whose runs score at every step as their baseline's do, or an earlier cell's, and that cell."""
    same = {}
    for position, result in enumerate(results.cells):
        baseline, curves = results.study.baseline_of(result.cell), _curves(result)
        before = [cell for cell in results.cells[:position] if results.study.baseline_of(cell.cell) == baseline]
        others = [results.result_of(baseline), *before] if baseline and curves else []
        alike = [cell.cell.name for cell in others if cell is not None and curves.items() <= _curves(cell).items()]
        if alike:
            same[result.cell.name] = alike[0]
    return same


def _curves(result: CellResult) -> dict[int, dict[int, float]]:
    return {seed.seed: seed.curve for seed in result.seeds if seed.curve}


def _compared_rows(results: StudyResults, paper_table: PaperTable) -> Iterator[ComparedRow]:
    main_column = [*paper_table.averages, paper_table.columns[0]][0]
    figures = paper_table.figures or {main_column: results.main_figure or ""}
    for row in paper_table.rows:
        of_row = [result for result in map(results.result_of, row.cells) if result is not None and result.seeds]
        for result in of_row:
            for column, name in figures.items():
                index = paper_table.columns.index(column)
                yield ComparedRow(
                    table=paper_table.name,
                    group=row.group,
                    row=row.row,
                    column=column,
                    cell=result.cell.name,
                    printed=printed(row.values[index]),
                    printed_gain=None if paper_table.figures else _gain(results, paper_table, row, result, index),
                    own=result.figures.get(name.format(row=row.row.lower())),
                    difference=None if paper_table.figures else results.difference(result),
                    num_seeds=len(result.seeds),
                )


def _gain(
    results: StudyResults, paper_table: PaperTable, row: PaperRow, result: CellResult, index: int
) -> float | None:
    """Return what the paper prints of a row, minus what it prints of the baseline's."""
    baseline = results.study.baseline_of(result.cell)
    base_row = next((item for item in paper_table.rows if baseline in item.cells), None)
    value, base = number_of(row.values[index]), None if base_row is None else number_of(base_row.values[index])
    return None if value is None or base is None else value - base


Table = list[Mapping[str, str | int | None]]

WORDS = frozenset(
    (
        "Paper's row", "Cell", "Column", "Figure", "Group", "Row", "Cells here", "What", "Setting", "Run", "Field",
        "Value", "Package", "Version",
    )
)  # fmt: skip
"""Columns of words; all others are of numbers."""


def comparison_table(rows: Sequence[ComparedRow], *, by_column: bool) -> Table:
    """Return one row for each printed number with the cell that reproduces it."""
    if by_column:
        return [
            {"Paper's row": row.full_row, "Cell": row.cell, "Column": row.column, "Paper": row.printed,
             "Yours": mean_text(row.own), "Seeds": row.num_seeds}
            for row in rows
        ]  # fmt: skip
    table: Table = [
        {
            "Paper's row": row.row,
            "Cell": row.cell,
            f"Paper, {row.column}": row.printed,
            "Paper, difference": None if row.printed_gain is None else f"{row.printed_gain:+z.1f}",
            "Yours": mean_text(row.own),
            "Yours, difference": mean_text(row.difference, is_difference=True),
            "Lowest seed": of_one_seed(row.own and min(row.own.values)),
            "Seeds": row.num_seeds,
        }
        for row in rows
    ]
    return _without_empty_differences(table)


def figures_table(results: StudyResults) -> Table:
    """Return every figure of every cell, with one row per cell, or one per figure if there are more of these."""
    done = [result for result in results.cells if result.seeds]
    names = list(dict.fromkeys(name for result in done for name in result.figures))
    if len(names) > len(done):
        return [
            {"Figure": name, **{result.cell.name: mean_text(result.figures.get(name)) for result in done}}
            for name in names
        ]
    table: Table = [
        {
            "Cell": result.cell.name,
            **{name: mean_text(result.figures.get(name)) for name in names},
            "Difference": mean_text(results.difference(result), is_difference=True),
            "Seeds": len(result.seeds),
        }
        for result in done
    ]
    return _without_empty_differences(table)


def own_gains_table(results: StudyResults) -> Table:
    """Return what the method gains in your runs, in each setting whose two cells can be run at this scale."""
    study, measured = results.study, list(dict.fromkeys(name for result in results.cells for name in result.figures))
    names = [name for name in study.gain_columns.values() if name in measured] or measured[:1]
    table: Table = []
    for gain in study.gains:
        method, baseline = (results.result_of(name) for name in gain.cells)
        if method is not None and baseline is not None:
            pairs = {name: mean_text(results.paired(method, baseline, name), is_difference=True) for name in names}
            table.append({"Setting": gain.setting, **pairs})
    return table


def printed_table(table: PaperTable) -> Table:
    """Return a table of the paper, each cell as printed."""
    has_groups = any(row.group for row in table.rows)
    return [
        {
            **({"Group": row.group} if has_groups else {}),
            "Row": row.row,
            "Cells here": ", ".join(row.cells) or "none",
            **dict(zip(table.columns, map(printed, row.values), strict=True)),
        }
        for row in table.rows
    ]


def texts_table(study: Study) -> Table:
    """Return the numbers in the paper's running text."""
    return [{"What": claim.row, "Column": claim.column, "Number": printed(claim.value)} for claim in study.claims]


def gains_table(study: Study) -> Table:
    """Return what the method gains in each setting by the printed tables, and the mean over settings."""
    gains = setting_gains(study)
    rows: Table = [
        {"Setting": setting, **{name: f"{value:+z.1f}" for name, value in values.items()}}
        for setting, values in gains.items()
    ]
    if not gains:
        return []
    means = {name: f"{fmean(values[name] for values in gains.values()):+z.2f}" for name in study.gain_columns}
    return [*rows, {"Setting": "Mean", **means}]


def mean_text(interval: MeanInterval | None, *, is_difference: bool = False) -> str | None:
    """Return mean and half interval, the latter left out of a single seed and of equal values; None without any."""
    if interval is None:
        return None
    sign = "+" if is_difference and interval.mean > 0 else ""
    decimals = 1 if max(abs(interval.mean), 0.0 if math.isnan(interval.half) else interval.half) >= 10 else 2
    if abs(interval.mean) < 1 and not is_difference:
        decimals = 3
    low, high = interval.ends()
    end = "" if math.isnan(interval.half) else f" ± {interval.half:.{decimals}f}"
    if low > interval.mean - interval.half or high < interval.mean + interval.half:
        end = f" ({low:.{decimals}f} to {high:.{decimals}f})"
    return f"{sign}{interval.mean:z.{decimals}f}{end}"


def of_one_seed(value: float | None) -> str | None:
    """Return a figure of one run with the decimals that means have."""
    return None if value is None else mean_text(mean_interval([value]))


def _without_empty_differences(table: Table) -> Table:
    """Return the table without differences where no cell has one, as in a study without a baseline."""
    names = ("Paper, difference", "Yours, difference", "Difference")
    empty = {name for name in names if all(row.get(name) is None for row in table)}
    return [{name: value for name, value in row.items() if name not in empty} for row in table]
