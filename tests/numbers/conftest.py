import pytest

from app import settings
from tests.numbers.pages import PAGES, check_page, prepare


@pytest.fixture(scope="session")
def recorded_root(tmp_path_factory):
    """The recorded runs, ingested."""
    return prepare(tmp_path_factory.mktemp("numbers") / "runs")


@pytest.fixture
def derive(recorded_root):
    """`derive("run", 2000)` opens all views of a page and asserts that at least so many numbers are derived and right.

    `num_left` tables or texts of the page are not derived, which may not grow.
    """

    def derived(name: str, least: int, num_left: int = 0) -> None:
        before = settings.current()
        try:
            tally = check_page(recorded_root, PAGES[name])
        finally:
            settings.configure(before)
        assert tally.wrong == []
        assert len(tally.not_derived) == num_left, tally.not_derived
        assert tally.num_right >= least

    return derived
