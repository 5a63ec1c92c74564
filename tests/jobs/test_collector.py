import gc

import pytest

from jobs.collector import collector_paused


@pytest.fixture(autouse=True)
def _thaw():
    yield
    gc.unfreeze()


def test_nothing_is_collected_meanwhile_and_what_came_is_not_looked_at_again():
    with collector_paused():
        assert not gc.isenabled()
        kept = [[] for _ in range(5)]
    assert gc.isenabled()
    assert not any(own is kept for own in gc.get_objects())


def test_an_import_that_fails_leaves_the_collector_on():
    with pytest.raises(ImportError), collector_paused():
        raise ImportError
    assert gc.isenabled()
