"""Counts of what the suite tried, printed at its end so that they can be quoted."""

from collections import Counter
from collections.abc import Callable

import pytest

from tests.browser.conftest import browser

__all__ = ["browser"]

_PREFIX = "tried: "


@pytest.fixture
def tried(record_property) -> Callable[[str, int], None]:
    """Say how many of a kind a test tried: `tried("traversal forms", 31)`; counted only where the test passes."""
    return lambda what, number: record_property(f"{_PREFIX}{what}", number)


def pytest_terminal_summary(terminalreporter):
    counts: Counter[str] = Counter()
    for report in terminalreporter.getreports("passed"):
        counts.update({name: number for name, number in report.user_properties if name.startswith(_PREFIX)})
    if counts:
        terminalreporter.section("security: tried and refused or inert")
    for name, number in sorted(counts.items()):
        terminalreporter.line(f"{number:5d} {name.removeprefix(_PREFIX)}")
