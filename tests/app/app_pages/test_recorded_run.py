"""Every page opens a run that a loop recorded; facts that it lacks are absent."""

import pytest

from app.page_list import PAGES
from exgrpo_core import recording
from jobs.execution.supervisor.open_index import ingest_all
from tests.app.charts import figures
from tests.app.page_texts import tables, texts

pytestmark = pytest.mark.slow

NO_LENGTH = {"prompt": "a word?", "response": "of unknown length", "reward": 1.0}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A root with one run: a step with every fact, one with texts alone, and its id."""
    root = tmp_path_factory.mktemp("recorded")
    run = recording.start("by hand", {"lr": 1e-6}, root)
    rows = [
        {
            "prompt": f"{question} + 1?", "response": f"It is {n}.", "reward": float(n % 2), "verdict": "wrong",
            "tokens": [5, 6], "logprobs": [-0.5, -0.25], "entropies": [0.5, 0.25], "advantage": 0.5, "tool": "calc",
        }
        for question in range(2) for n in range(4)
    ]  # fmt: skip
    run.log(1, {"loss": 0.5, "mine/curve": 1.0}, trajectories=rows)
    chat = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]
    run.log(2, {"loss": 0.25}, trajectories=["text alone", {"messages": [*chat, *chat]}, NO_LENGTH])
    run.finish()
    ingest_all(root, None)
    return root, run.run_id


@pytest.fixture
def recorded_shared(recorded, share):
    share(recorded[0])
    return recorded[1]


@pytest.mark.parametrize("name", [page.name for page in PAGES])
def test_every_page_opens_it(recorded_shared, open_page, name):
    page = open_page(name, run=recorded_shared)
    assert not page.exception
    assert not page.error


def test_the_page_of_the_run_shows_curves_and_settings_and_offers_nothing_that_a_worker_does(
    recorded_shared, open_page
):
    page = open_page("run", run=recorded_shared)
    assert figures(page)
    assert "Newest step: 2" in [caption.value for caption in page.caption], "how many steps there will be is unknown"
    assert {"loss", "mine/curve"} <= {word for text in texts(page) for word in text.replace("**", " ").split()}
    assert not {"Stop", "Resume", "Clone"} & {button.label for button in page.button}
    page = open_page("run", run=recorded_shared, view="Configuration")
    assert not page.exception
    assert "lr: 1.0e-06" in page.code[-1].value


@pytest.mark.usefixtures("recorded_shared")
def test_the_list_of_runs_shows_no_share_that_is_done(open_page):
    assert tables(open_page("runs"))[0].value["Progress"].isna().all()


@pytest.mark.parametrize("number", ["1", "10", "11"])
def test_a_trajectory_is_shown_with_what_is_known_of_it(recorded_shared, open_page, number):
    page = open_page("trajectories", run=recorded_shared, trajectory=number)
    assert not page.exception
    shown = texts(page)
    assert any("tool: calc" in text for text in shown) == (number == "1")
    assert not any("nan" in text.lower().split() for text in shown)


def test_answers_to_a_question_are_shown_without_their_lengths(recorded_shared, open_page):
    page = open_page("trajectories", run=recorded_shared, trajectory="12", part="Question")
    assert not page.exception
    assert "1 of 1" in [*tables(page)[-1].value["Correct"]]
