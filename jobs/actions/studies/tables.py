"""A study's tables, the same on its page and in its report: each row maps columns to texts, None for no number."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

from exgrpo.db.statistics import MeanInterval, mean_interval
from exgrpo.jobs.actions.studies.comparison import ComparedRow
from exgrpo.jobs.actions.studies.definition import PaperTable, Study
from exgrpo.jobs.actions.studies.numbers import TEXT_TABLE, number_rows, printed, setting_gains
from exgrpo.jobs.actions.studies.study_results import StudyResults

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
    rows = [row for row in number_rows(study) if row.table == TEXT_TABLE]
    return [{"What": row.row, "Column": row.column, "Number": row.printed} for row in rows]


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
