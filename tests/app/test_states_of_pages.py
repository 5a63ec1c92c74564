"""Every page with nothing recorded, for runs in every state, and for what the address asks for and is not there."""

from pathlib import Path

import pytest

from exgrpo.app import app_pages
from exgrpo.app.page_list import PAGES, PLACES
from exgrpo.jobs.execution.supervisor.indexing import rebuild_index
from exgrpo.jobs.runs.directory import list_run_directories
from exgrpo_core import exgrpo_step
from exgrpo_core.verl_plugin.run_record import RunRecord
from tests.app import judged
from tests.app.page_texts import has_text, tables, texts
from tests.app.recorded import FAILED, RUNNING
from tests.exgrpo_core.builders import small_config
from tests.exgrpo_core.toy_engine import ToyEngine
from tests.exgrpo_core.toy_runs import MEDIUM_RATES, new_state
from tests.exgrpo_core.verl_plugin.test_run_record import verl_config

TITLES = {page.name: None if page.name == "run" else page.title for page in PAGES}
WITHOUT_RUNS = {"compare": "Choose two runs or more", "runs": "No runs yet", "run": "No runs yet"}
OF_LIST = {"view": "Trajectories", "run": "run-finished"}
OF_ONE_RUN = [query for name, query in PLACES if name == "run"]


def opened(open_page, name, **query):
    """Open a page that says nothing of a fault and has its title; the run's page has the run's name in its place."""
    page = open_page(name, **query)
    assert not page.error
    titles = [title.value for title in page.title]
    assert titles == [TITLES[name]] if TITLES[name] else len(titles) <= 1
    return page


@pytest.mark.parametrize(("name", "query"), PLACES)
def test_page_opens_with_nothing_recorded(open_page, name, query):
    assert has_text(opened(open_page, name, **query), WITHOUT_RUNS.get(name, ""))


@pytest.mark.usefixtures("recorded_shared")
@pytest.mark.parametrize(("name", "query"), [place for place in PLACES if place[0] != "run"])
def test_page_opens_beside_runs_in_all_states(open_page, name, query):
    opened(open_page, name, run=RUNNING.run_id, **query)


@pytest.mark.usefixtures("recorded_shared")
@pytest.mark.parametrize("run", [RUNNING, FAILED], ids=lambda run: run.status)
@pytest.mark.parametrize("query", OF_ONE_RUN)
def test_tab_of_one_run_opens_for_a_run_in_any_state_and_shows_no_other(open_page, query, run):
    page = opened(open_page, "run", run=run.run_id, **query)
    assert any(f" {run.status}]" in text.value for text in page.markdown)
    assert page.selectbox(key="run-choice").value == run.run_id


@pytest.mark.usefixtures("played_shared")
@pytest.mark.parametrize("query", [{"view": "Buffer"}, {"view": "Step"}])
def test_a_run_without_replay_is_never_replaced_by_one_that_has_it(open_page, query):
    page = opened(open_page, "run", run="play-on-policy", **query)
    page.query_params.pop("run")
    page.run()
    assert page.selectbox(key="run-choice").value == page.query_params["run"] == "play-on-policy"


def test_pages_of_one_run_open_for_what_a_stock_verl_recorded(runs_root, tmp_path_factory, open_page):
    config, folder = small_config(), tmp_path_factory.mktemp("verl")
    record = RunRecord.open(runs_root, verl_config(folder), config, is_resumed=False)
    state, engine = new_state(folder, config), ToyEngine(MEDIUM_RATES)
    record.begin(state.questions, str)
    for _ in range(4):
        record.step(exgrpo_step(state, engine, config))
    record.end("finished")
    rebuild_index(runs_root, None)
    (run,) = list_run_directories(runs_root)
    for query in OF_ONE_RUN:
        opened(open_page, "run", run=run.run_id, **query)
    shown = {metric.label: metric.value for metric in open_page("run", run=run.run_id).metric}
    assert shown["Replay buffer"] == str(state.replay_buffer.num_questions)


@pytest.fixture
def chosen_shared(request):
    return request.getfixturevalue(f"{request.param}_shared")


@pytest.mark.parametrize(
    ("chosen_shared", "name", "query", "title"),
    [
        ("recorded", "run", {"run": "run-queued"}, "No steps yet"),
        ("recorded", "run", {"run": "run-on-policy", "view": "Buffer"}, "No replay buffer"),
        ("recorded", "run", {"run": "../../etc"}, "No such run"),
        ("recorded", "run", {"view": "Trajectories", "run": "run-queued"}, "No trajectories yet"),
        ("recorded", "run", OF_LIST | {"trajectory": "999999"}, "No such trajectory"),
        ("recorded", "run", OF_LIST | {"verdict": "timeout"}, "No trajectory matches"),
        ("played", "run", {"view": "Buffer", "run": "play-queued"}, "No steps yet"),
        ("played", "run", {"view": "Buffer", "run": "play-on-policy"}, "No replay buffer"),
        ("played", "run", {"view": "Step", "run": "play-queued"}, "No step with responses yet"),
        ("judged", "run", {"view": "Reasoning", "run": judged.QUEUED}, "No steps yet"),
        (
            "judged", "run", {"view": "Reasoning", "run": judged.JUDGED, "part": "Verdicts", "trajectory": "99999"},
            "No such trajectory",
        ),
    ],
    indirect=["chosen_shared"],
)  # fmt: skip
def test_what_is_not_there_is_a_designed_state(chosen_shared, open_page, name, query, title):  # noqa: ARG001 - its runs are read
    page = open_page(name, **query)
    assert any(text.startswith(title) for text in texts(page))


@pytest.mark.parametrize(
    ("chosen_shared", "name", "query", "table", "opened"),
    [
        ("recorded", "runs", {"q": "run-finished"}, 0, "run"),
        ("played", "run", {"view": "Trajectories", "run": "play-finished"}, 0, "trajectory"),
        ("played", "run", {"view": "Step", "run": "play-finished"}, 1, "question"),
        ("judged", "run", {"view": "Reasoning", "run": judged.JUDGED, "part": "Verdicts"}, 0, "trajectory"),
        ("scored", "benchmarks", {"first": "eval-early", "second": "eval-late", "on": "math500"}, 1, "item"),
    ],
    indirect=["chosen_shared"],
)
def test_a_click_on_a_row_opens_what_it_is_of(chosen_shared, open_page, name, query, table, opened):  # noqa: ARG001 - read
    page = open_page(name, **query)
    clicked = tables(page)[table]
    clicked.open(page, 0)
    assert page.query_params[opened]
    if name == "runs":
        assert [title.value for title in page.title] == ["exgrpo whole"]


def test_every_file_of_a_page_is_listed():
    files = {file.stem for file in Path(app_pages.__file__).parent.glob("*.py")} - {"__init__"}
    assert {page.name for page in PAGES} == files, "PAGES of app/page_list.py: add a line for each file of a page."
