import pytest

from app import settings
from jobs.supervisor.open_index import rebuild_index
from tests.numbers import record
from tests.numbers.derived import Root
from tests.numbers.pages import PAGES, check_page


@pytest.fixture(scope="session")
def recorded_root(tmp_path_factory):
    """The recorded runs, ingested."""
    path = tmp_path_factory.mktemp("numbers") / "runs"
    record.record(path)
    rebuild_index(path, None)
    return Root(path)


@pytest.fixture
def derive(recorded_root):
    """`derive("run")` opens all views of a page on the runs and asserts that every number is derived and right."""

    def derived(name: str, least: int) -> None:
        before = settings.current()
        try:
            tally = check_page(recorded_root, PAGES[name])
        finally:
            settings.configure(before)
        assert tally.wrong == []
        assert tally.not_derived == []
        assert tally.num_right >= least

    return derived
