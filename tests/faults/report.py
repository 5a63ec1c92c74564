"""The figures of each row: reliability/row-NN.json, and the ends of the lines in docs/measurements/reliability.md."""

import json
import os
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tests.conftest import REPOSITORY

DOCUMENT = REPOSITORY / "docs" / "measurements" / "reliability.md"


@dataclass
class RowResult:
    """What one session saw of one row."""

    tests: set[str] = field(default_factory=set)
    passed: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    seconds: float = 0.0
    figures: dict[str, str] = field(default_factory=dict)

    @property
    def is_whole(self):
        """Whether every test that was collected of the row ran."""
        return bool(self.tests) and self.tests <= self.passed | self.failed


def write_row(number, result, document=DOCUMENT):
    content = {
        "row": number, "met": not result.failed, "figures": result.figures, "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "seconds": round(result.seconds, 1), "cores": len(os.sched_getaffinity(0)),
    }  # fmt: skip
    path = document.with_suffix("") / f"row-{number:02d}.json"
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    met = "yes" if content["met"] else "**no**"
    ends = f"| {met} | {content['date']} | {result.seconds:,.0f} s on {content['cores']} cores |"
    line = re.compile(rf"^(\| {number} \|[^|]*\|[^|]*).*$", re.MULTILINE)
    text, num_lines = line.subn(lambda found: found[1] + ends, document.read_text(encoding="utf-8"))
    if num_lines != 1:
        raise ValueError(f"{document}: expected one line of row {number}, got {num_lines}")
    document.write_text(text, encoding="utf-8")
