"""Choices of training runs hold them however many newer jobs of other kinds there are."""

import pytest

from exgrpo.app.queries import runs as run_queries
from exgrpo.db.connections.opening import open_database
from tests.app import played
from tests.db.recorded_scores import record_scores

pytestmark = pytest.mark.slow


@pytest.fixture
def evaluated(played_runs, monkeypatch):
    """Played runs below more evaluations than a page of runs holds."""
    monkeypatch.setattr(run_queries, "RUNS_PAGE_SIZE", len(played.ALL))
    database = open_database(None, played_runs)
    for number in range(len(played.ALL)):
        record_scores(database, played_runs, run_id=f"eval-{number}")
    database.close()


@pytest.mark.usefixtures("evaluated")
@pytest.mark.parametrize(
    ("page", "kind", "key"),
    [
        ("run", "selectbox", "run-choice"),
        ("compare", "multiselect", "runs-choice"),
        ("benchmarks", "multiselect", "evaluate-models"),
    ],
)
def test_runs_are_offered_below_many_newer_evaluations(open_page, page, kind, key):
    opened = open_page(page, run=played.FINISHED.run_id, start="true", view="Buffer")
    assert not opened.exception
    [choice] = [element for element in opened.get(kind) if element.key == key]
    assert any(played.FAILED.name in option for option in choice.options)


@pytest.fixture
def crowded(monkeypatch):
    """Choices offer the newest run alone."""
    monkeypatch.setattr(run_queries, "RUNS_PAGE_SIZE", 1)


def type_in(choice, words, *others):
    """Send what the browser sends of typed words; AppTest knows offered values alone."""
    choice.options.append(words)
    choice.set_value([*others, words] if others else words).run()


@pytest.mark.usefixtures("crowded", "played_shared")
@pytest.mark.parametrize(
    ("page", "kind", "key", "parameter", "typed"),
    [
        ("run", "selectbox", "run-choice", "run", played.FAILED.run_id),
        ("run", "selectbox", f"against-{played.FINISHED.run_id}", "against", "BROKEN replay"),
        ("compare", "multiselect", "runs-choice", "runs", "broken"),
    ],
)
def test_any_run_is_found_by_typing(open_page, page, kind, key, parameter, typed):
    first = [played.FINISHED.run_id] if kind == "multiselect" else []
    opened = open_page(page, run=played.FINISHED.run_id, runs=played.FINISHED.run_id, view="Buffer")
    [choice] = [element for element in opened.get(kind) if element.key == key]
    assert not any(played.FAILED.name in option for option in choice.options)
    type_in(choice, typed, *first)
    assert not opened.exception
    assert opened.query_params[parameter] == ",".join([*first, played.FAILED.run_id])


@pytest.mark.usefixtures("crowded", "played_shared")
def test_a_run_that_is_not_there_leaves_the_choice_as_it_was(open_page):
    opened = open_page("run", view="Trajectories", run=played.FINISHED.run_id)
    type_in(opened.selectbox(key="run-choice"), "*nowhere*")
    assert opened.query_params["run"] == played.FINISHED.run_id
    assert r"\*nowhere\*" in opened.toast[0].value
    type_in(opened.selectbox(key="run-choice"), "many words " * 100)
    assert not opened.exception
    assert "at most" in opened.toast[0].value
