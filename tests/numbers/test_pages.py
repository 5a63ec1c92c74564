"""Every number that a page shows of recorded runs is derived again from their files."""

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_runs(derive):
    derive("runs", 30)


def test_run(derive):
    derive("run", 2000)


def test_compare(derive):
    derive("compare", 200)
