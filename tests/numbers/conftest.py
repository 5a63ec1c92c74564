import pytest

from exgrpo.app import settings
from tests.numbers.pages import PAGES, check_page, prepare


@pytest.fixture(scope="session")
def recorded_root(tmp_path_factory):
    """The recorded runs, ingested."""
    return prepare(tmp_path_factory.mktemp("numbers") / "runs")


@pytest.fixture
def derive(recorded_root):
    """`derive("run", 2000)` opens all views of a page and asserts that all numbers, at least so many, are correct."""

    def derived(name, least):
        before = settings.current()
        try:
            tally = check_page(recorded_root, PAGES[name])
        finally:
            settings.configure(before)
        assert tally.wrong == []
        assert tally.not_derived == []
        assert tally.num_right >= least

    return derived
