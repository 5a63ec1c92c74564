"""A study's own figures next to the paper's numbers row by row, and the settings that tell its cells apart."""

import importlib.metadata
import math
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from db.statistics import CONFIDENCE, MeanInterval, holm
from jobs.actions.studies.definition import PaperRow, PaperTable, Study, number_of
from jobs.actions.studies.numbers import printed
from jobs.actions.studies.study_results import CellResult, StudyResults

DASH = "-"
"""What a table holds where there is no number."""
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
    tables = results.study.tables
    mapped = [item for item in tables if item.figures]
    if mapped:
        return [line for entry in mapped for line in _mapped_rows(results, entry)]
    distinct: dict[tuple[str, ...], ComparedRow] = {}
    for table in tables if results.main_figure else ():
        for line in _whole_rows(results, table):
            distinct.setdefault((line.table, line.row, line.cell, line.printed), line)
    return list(distinct.values())


def is_by_column(study: Study) -> bool:
    """Return whether a study's rows are compared column by column, not by one figure for a whole run."""
    return any(table.figures for table in study.tables)


def main_column(paper_table: PaperTable) -> str:
    """Return the column of a table that represents a row: its first average, else its first column."""
    return [*paper_table.averages, paper_table.columns[0]][0]


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


def _done_cells(results: StudyResults, row: PaperRow) -> list[CellResult]:
    of_row = (results.result_of(name) for name in row.cells)
    return [result for result in of_row if result is not None and result.seeds]


def _mapped_rows(results: StudyResults, paper_table: PaperTable) -> Iterator[ComparedRow]:
    for row in paper_table.rows:
        for result in _done_cells(results, row):
            for column, name in paper_table.figures.items():
                yield ComparedRow(
                    table=paper_table.name,
                    group=row.group,
                    row=row.row,
                    column=column,
                    cell=result.cell.name,
                    printed=printed(row.values[paper_table.columns.index(column)]),
                    printed_gain=None,
                    own=result.figures.get(name.format(row=row.row.lower())),
                    difference=None,
                    num_seeds=len(result.seeds),
                )


def _whole_rows(results: StudyResults, paper_table: PaperTable) -> Iterator[ComparedRow]:
    column = main_column(paper_table)
    index = paper_table.columns.index(column)
    for row in paper_table.rows:
        for result in _done_cells(results, row):
            base_row = _base_row(results.study, paper_table, result)
            values = [number_of(item.values[index]) if item is not None else None for item in (row, base_row)]
            yield ComparedRow(
                table=paper_table.name,
                group=row.group,
                row=row.row,
                column=column,
                cell=result.cell.name,
                printed=printed(row.values[index]),
                printed_gain=None if values[0] is None or values[1] is None else values[0] - values[1],
                own=result.figures.get(results.main_figure or ""),
                difference=results.difference(result),
                num_seeds=len(result.seeds),
            )


def _base_row(study: Study, paper_table: PaperTable, result: CellResult) -> PaperRow | None:
    name = study.baseline_of(result.cell)
    return next((row for row in paper_table.rows if name in row.cells), None)


_PACKAGES = ("exgrpo-workbench", "torch", "transformers", "numpy", "verl", "vllm")
_OWN_TO_A_RUN = frozenset({"name", "tags", "seed", "algorithm.seed", "model.warm_seed", "preset"})
_NOT_SET = "(not set)"


@dataclass(frozen=True, slots=True)
class Configuration:
    """Fields of specifications as dotted paths, with their values in words."""

    common: dict[str, str]
    by_cell: dict[str, dict[str, str]]
    """For each cell, the fields in which cells differ."""
    unequal: tuple[str, ...]
    """Sentences on cells whose runs differ in more than the seed."""


def read_configuration(cells: tuple[CellResult, ...]) -> Configuration:
    """Return what the finished runs were asked for, as their specifications recorded it."""
    specs = {result.cell.name: [_flat(seed.spec) for seed in result.seeds] for result in cells if result.seeds}
    everything = [fields for spec in specs.values() for fields in spec]
    names = sorted({name for fields in everything for name in fields} - _OWN_TO_A_RUN)
    values = {name: {fields.get(name, _NOT_SET) for fields in everything} for name in names}
    differing = [name for name in names if len(values[name]) > 1]
    return Configuration(
        common={name: next(iter(values[name])) for name in names if len(values[name]) == 1},
        by_cell={
            cell: {name: " or ".join(sorted({fields.get(name, _NOT_SET) for fields in item})) for name in differing}
            for cell, item in specs.items()
        },
        unequal=tuple(
            f"{cell}: its runs differ in {name}, so its interval is not only over seeds."
            for cell, entry in specs.items()
            for name in differing
            if len({fields.get(name, _NOT_SET) for fields in entry}) > 1
        ),
    )


def read_versions() -> dict[str, str]:
    """Return the versions of this machine's Python, of the packages that matter, and its processor."""
    versions = {"Python": platform.python_version(), "system": f"{platform.system()} {platform.machine()}"}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _flat(content: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    fields: dict[str, str] = {}
    for name, value in content.items():
        if isinstance(value, Mapping):
            fields |= _flat(value, f"{prefix}{name}.")
        else:
            fields[prefix + name] = "none" if value is None else str(value)
    return fields


def interval_text(interval: MeanInterval | None, is_difference: bool = False) -> str:
    """Return mean and half interval, the latter left out of a single seed and of equal values."""
    if interval is None:
        return DASH
    sign = "+" if is_difference and interval.mean > 0 else ""
    decimals = 1 if max(abs(interval.mean), 0.0 if math.isnan(interval.half) else interval.half) >= 10 else 2
    if abs(interval.mean) < 1 and not is_difference:
        decimals = 3
    end = "" if math.isnan(interval.half) else f" ± {interval.half:.{decimals}f}"
    return f"{sign}{interval.mean:z.{decimals}f}{end}"


def number_text(value: float | None) -> str:
    """Return a number with as many decimals as its size calls for, a dash for none."""
    if value is None or math.isnan(value):
        return DASH
    if value.is_integer() and abs(value) >= 1000:
        return f"{value:z,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:z.3f}"
