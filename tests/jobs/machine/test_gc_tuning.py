import gc

import pytest

from jobs.machine.gc_tuning import NEW_OBJECTS, collect_as_usual, collect_rarely, gc_paused


@pytest.fixture(autouse=True)
def _collector():
    threshold = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.enable()
    gc.set_threshold(*threshold)


def test_nothing_is_collected_meanwhile_and_what_came_is_not_looked_at_again():
    with gc_paused():
        assert not gc.isenabled()
        kept = [[] for _ in range(5)]
    assert gc.isenabled()
    assert not any(item is kept for item in gc.get_objects())


def test_an_import_that_fails_leaves_the_collector_on():
    with pytest.raises(ImportError), gc_paused():
        raise ImportError
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off():
    gc.disable()
    with gc_paused():
        pass
    assert not gc.isenabled()


def test_collecting_rarely_ends():
    before = gc.get_threshold()
    collect_rarely()
    assert gc.get_threshold()[0] == NEW_OBJECTS != before[0]
    kept: list[list] = [[]]
    collect_as_usual()
    assert gc.get_threshold() == before
    assert not any(item is kept for item in gc.get_objects())
