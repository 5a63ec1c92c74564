from exgrpo_core.state import DelayedStart


def test_latch_opens_strictly_over_the_rate_and_stays_open():
    start = DelayedStart(0.35)
    assert not start.is_open
    start.observe(0.35)
    assert not start.is_open
    start.observe(0.36)
    assert start.is_open
    start.observe(0.0)
    assert start.is_open


def test_without_a_rate_it_is_open_from_the_beginning():
    assert DelayedStart(None).is_open


def test_saved_latch_comes_back():
    start = DelayedStart(0.35)
    start.observe(1.0)
    restored = DelayedStart(0.35)
    restored.load_state_dict(start.state_dict())
    assert restored.is_open
    restored.load_state_dict(DelayedStart(0.35).state_dict())
    assert not restored.is_open
