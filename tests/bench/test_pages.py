import time

import pytest

from bench.page_browser import _bursts
from bench.pages import views
from bench.stopwatch import Stopwatch

pytestmark = pytest.mark.slow


def test_messages_that_come_together_are_one_refresh():
    assert _bursts([]) == []
    assert _bursts([(1.0, 10), (1.1, 5), (3.0, 7), (3.2, 1), (5.5, 2)]) == [15, 8, 2]


def test_every_view_has_its_own_name_and_a_query():
    found = views(17)
    assert len({view.name for view in found}) == len(found)
    assert all(view.queries and view.content for view in found)


def test_a_stopwatch_prints_median_and_maximum_and_counts_computing_alone(capsys):
    watch = Stopwatch()
    for seconds in (0.0, 0.0, 0.5):
        with watch.lap():
            time.sleep(seconds)
    figures = watch.figures("wait_ms")
    assert figures["wait_ms"] < figures["wait_ms_max"] >= 500
    assert figures["wait_ms_computing"] < 400
    assert capsys.readouterr().out.startswith("wait_ms ")
    with pytest.raises(Exception, match="no median"):
        Stopwatch().figures("none")
