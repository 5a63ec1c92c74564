"""What was seen of each row, kept in docs/reliability/row-NN.json and shown as the table of docs/reliability.md."""

import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.conftest import REPOSITORY
from tests.faults.rows import ROWS

DOCUMENT = REPOSITORY / "docs" / "reliability.md"
START, END = "<!-- rows: start -->", "<!-- rows: end -->"
HEADER = "| Row | What is done | Criterion | Met | Run on | Took |\n|---|---|---|---|---|---|\n"


@dataclass
class RowResult:
    """What one session saw of one row."""

    tests: set[str] = field(default_factory=set)
    modules: set[str] = field(default_factory=set)
    passed: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    seconds: float = 0.0
    figures: dict[str, str] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """Whether every test that was collected of the row ran."""
        return self.tests <= self.passed | self.failed

    def note_figure(self, name: str, value: str) -> None:
        """Keep a figure under a name that no other of the row has."""
        if self.figures.setdefault(name, value) != value:
            raise ValueError(f"figure {name!r} is there already; give each test's figures names of their own.")


def modules_of(number: int, folder: Path = Path(__file__).parent) -> set[str]:
    """Return the test modules that hold tests of a row."""
    mark = f"fault_row({number})"
    return {path.name for path in folder.glob("test_*.py") if mark in path.read_text(encoding="utf-8")}


def write_row(folder: Path, number: int, result: RowResult) -> None:
    """Write what was seen of a row to `row-NN.json`."""
    content = {
        "row": number,
        "met": not result.failed,
        "figures": result.figures,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "seconds": round(result.seconds, 1),
        "cores": len(os.sched_getaffinity(0)),
    }
    folder.mkdir(exist_ok=True)
    (folder / f"row-{number:02d}.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def read_rows(folder: Path) -> list[dict[str, Any]]:
    """Return the content of every row file, in order."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("row-*.json"))]


def table(results: Iterable[dict[str, Any]]) -> str:
    """Return the Markdown table of all rows; those that nobody ran say so."""
    by_row = {result["row"]: result for result in results}
    return HEADER + "".join(_line(number, by_row.get(number)) for number in ROWS)


def _line(number: int, result: dict[str, Any] | None) -> str:
    row = ROWS[number]
    ends = ["not run", "", ""]
    if result is not None:
        took = f"{result['seconds']:,.0f} s on {result['cores']} cores"
        ends = ["yes" if result["met"] else "**no**", result["date"], took]
    cells = [str(number), row.fault, row.criterion, *ends]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def rewrite_table(document: Path, results: Iterable[dict[str, Any]]) -> None:
    """Put the table of the results between the document's two marker lines."""
    text = document.read_text(encoding="utf-8")
    pattern = re.compile(f"(?<={re.escape(START)}\n).*?(?={re.escape(END)})", re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"{document}: expected a line {START} and a line {END} after it.")
    document.write_text(pattern.sub(lambda _: table(results), text), encoding="utf-8")
