"""Short and long forms of the fault tests, and the record of what was seen of each row."""

import os
from collections import defaultdict

import pytest

from tests.faults.report import RowResult, write_row

IS_LONG = os.environ.get("EXGRPO_FAULTS_LONG", "0") not in {"", "0"}
ROW = os.environ.get("EXGRPO_FAULTS_ROW", "")
results: dict[int, RowResult] = defaultdict(RowResult)


@pytest.fixture(scope="session")
def is_long():
    """Whether the counts of the criteria are wanted, which take from minutes to an hour a row."""
    return IS_LONG


@pytest.fixture
def figure(request):
    """Record what was seen for the test's row: `figure("runs resumed", "200 of 200")`."""
    number = row_of(request.node)
    assert number is not None, "figure() needs the mark fault_row(N)"
    return lambda name, value: results[number].figures.update({name: str(value)})


def row_of(item):
    mark = item.get_closest_marker("fault_row")
    return None if mark is None else mark.args[0]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    for item in items:
        number = row_of(item)
        if number is not None:
            results[number].tests.add(item.nodeid)
    if ROW:
        others = [item for item in items if row_of(item) != int(ROW)]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if row_of(item) == int(ROW)]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    number = row_of(item)
    if number is not None:
        result = results[number]
        result.seconds += report.duration
        if report.failed:
            result.failed.add(item.nodeid)
        elif report.when == "call" and report.passed:
            result.passed.add(item.nodeid)
    return report


def pytest_terminal_summary(terminalreporter):
    for number, result in sorted(results.items()):
        for name, value in result.figures.items():
            terminalreporter.write_line(f"row {number}: {name}: {value}")


def pytest_sessionfinish():
    for number, result in sorted(results.items()):
        if IS_LONG and result.is_whole:
            write_row(number, result)
