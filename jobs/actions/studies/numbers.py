"""The paper's printed numbers as rows, and where they do not agree with each other, by computation."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean

from exgrpo.jobs.actions.studies.definition import Gain, PrintedValue, Reference, Study, load_study, number_of

TEXT_TABLE = "text"
"""The table name of numbers in the running text."""
_SLACK = 1e-9


@dataclass(frozen=True, slots=True)
class NumberRow:
    """One number of the paper; `printed` is its text there."""

    table: str
    group: str
    row: str
    column: str
    value: float | None
    """None where the paper prints a dash."""
    printed: str
    note: str = ""
    """What the number does not agree with."""


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A printed number that does not follow from the others; `expected` is what does."""

    place: tuple[str, str, str, str]
    """Table, group, row and column of the number."""
    printed: float
    expected: float
    reason: str
    is_rounding: bool = False
    """Whether rounding of the printed numbers can explain it."""

    @property
    def sentence(self) -> str:
        """The disagreement in words, without its location."""
        end = ", which rounding can explain" if self.is_rounding else ""
        return f"the paper prints {self.printed:g}, but {self.reason} {self.expected:.2f}{end}"

    @property
    def location(self) -> str:
        """The place of the number in words."""
        return ", ".join(filter(None, self.place))


def number_rows(study: Study) -> list[NumberRow]:
    """Return every number that the paper prints of a study: its tables cell by cell, then its text."""
    notes = {disagreement.place: disagreement.sentence for disagreement in disagreements(study)}
    found = [
        ((table.name, row.group, row.row, column), value)
        for table in study.tables
        for row in table.rows
        for column, value in zip(table.columns, row.values, strict=True)
    ]
    found += [((TEXT_TABLE, "", claim.row, claim.column), claim.value) for claim in study.claims]
    return [NumberRow(*place, number_of(value), printed(value), notes.get(place, "")) for place, value in found]


def printed(value: PrintedValue) -> str:
    """Return the cell as the paper prints it; bare numbers have one decimal there, all others are text here."""
    return value if isinstance(value, str) else f"{value:.1f}"


def disagreements(study: Study) -> list[Disagreement]:
    """Return the printed averages that are not the mean of their cells, and text that differs from its table.

    Cells and averages are rounded to one decimal, so a mean of printed cells may be off by 0.1 and no number be wrong.
    """
    return [*_wrong_averages(study), *_wrong_claims(study), *_wrong_gains(study)]


def setting_gains(study: Study) -> dict[str, dict[str, float]]:
    """Return the gain in each setting that a study averages over, column by column, from the printed tables."""
    return {
        gain.setting: {name: _gain(gain, column) for name, column in study.gain_columns.items()} for gain in study.gains
    }


def find_value(reference: Reference) -> float:
    """Return the number in a cell of a table.

    Raises:
        LookupError: There is no such cell, or it holds no number.
    """
    study = load_study(reference.study)
    for table in study.tables:
        for row in table.rows:
            if (table.name, row.group, row.row) == (reference.table, reference.group, reference.row):
                return table.number(row, reference.column)
    raise LookupError(f"study {reference.study} has no number at {reference}.")


def _wrong_averages(study: Study) -> Iterator[Disagreement]:
    for table in study.tables:
        for row in table.rows:
            for column, parts in table.averages.items():
                average, mean = table.number(row, column), fmean(table.number(row, part) for part in parts)
                distance = abs(average - mean) - _SLACK
                if distance > 0.05:
                    cell = (table.name, row.group, row.row, column)
                    yield Disagreement(cell, average, mean, "the mean of its cells is", is_rounding=distance <= 0.1)


def _wrong_claims(study: Study) -> Iterator[Disagreement]:
    for claim in study.claims:
        value = number_of(claim.value)
        if claim.same_as is None or value is None:
            continue
        in_table = math.copysign(find_value(claim.same_as), value)  # a drop of 8.7 is printed as -8.7 elsewhere
        if abs(value - in_table) > _SLACK:
            reason = f"{claim.same_as.table} has"
            yield Disagreement((TEXT_TABLE, "", claim.row, claim.column), value, in_table, reason)


def _wrong_gains(study: Study) -> Iterator[Disagreement]:
    gains = setting_gains(study)
    for claim in study.claims:
        value = number_of(claim.value)
        if value is None or claim.column not in study.gain_columns:
            continue
        mean = fmean(gain[claim.column] for gain in gains.values())
        if abs(value - mean) > 0.05 + _SLACK:
            place = (TEXT_TABLE, "", claim.row, claim.column)
            yield Disagreement(place, value, mean, "the mean over settings is")


def _gain(gain: Gain, column: str) -> float:
    method, baseline = (
        find_value(Reference(study=gain.study, table=gain.table, group=gain.group, row=row, column=column))
        for row in (gain.method, gain.baseline)
    )
    return method - baseline
