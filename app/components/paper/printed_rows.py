"""The printed numbers of an entry: one value for each row of its table."""

from collections.abc import Iterator
from dataclasses import dataclass

from app import paper_and_studies
from app.components.paper.entries import Entry
from app.paper_and_studies import PaperTable


@dataclass(frozen=True, slots=True)
class PrintedRow:
    """One row's printed number; `is_ours` marks rows of ExGRPO as the paper recommends it."""

    group: str
    name: str
    value: float
    text: str
    is_ours: bool


def tables_of(entry: Entry) -> Iterator[PaperTable]:
    """Yield the printed tables of an entry, as far as studies hold their rows."""
    for name in (entry.study, *entry.others):
        if entry.table:
            yield from (table for table in paper_and_studies.load_study(name).tables if table.name == entry.table)


def rows_of(entry: Entry) -> list[PrintedRow]:
    """Return the number that the entry's picture draws of each row; dashes and repeated rows are left out."""
    rows: dict[tuple[str, float], PrintedRow] = {}
    for table in tables_of(entry):
        for row in table.rows:
            printed = row.values[table.columns.index(entry.column)]
            value = paper_and_studies.number_of(printed)
            if value is not None and not paper_and_studies.printed(printed).endswith("%"):
                is_ours = row.row.startswith("ExGRPO")
                key = (row.row, value)
                rows.setdefault(key, PrintedRow(row.group, row.row, value, paper_and_studies.printed(printed), is_ours))
    return list(rows.values())
