import pytest

from exgrpo.app.app_pages.tabs.buffer import limits
from exgrpo.app.components.replay_buffer import buffer_charts
from exgrpo.app.components.widgets import data_table
from tests.app.page_texts import has_text, tables, texts

pytestmark = pytest.mark.slow

VIEWS = ["Buckets", "Flow", "Ages and replays", "Over time", "Concentration", "Retired"]


@pytest.mark.usefixtures("played_shared")
@pytest.mark.parametrize("view", VIEWS)
def test_every_view_is_shown_before_replay_opened(open_page, view):
    page = open_page("run", view="Buffer", run="play-unstarted", part=view)
    assert {*VIEWS} <= {tab.label for tab in page.tabs}


@pytest.mark.usefixtures("played_shared")
@pytest.mark.parametrize(("step", "base"), [("5", "2"), ("2", "5")])
def test_flow_goes_forward_and_its_mark_names_its_questions(open_page, step, base):
    page = open_page(
        "run", view="Buffer", run="play-finished", step=step, base=base, part="Flow", mark="flow:outside:2"
    )
    assert page.slider(key="step").value == int(step)
    assert has_text(page, "From step 2 to step 5")
    assert has_text(page, "not stored → bucket 2")
    question_table = tables(page)[0].value
    assert set(question_table["After step 2"]) == {"not stored"}
    assert set(question_table["After step 5"]) == {"bucket 2"}


@pytest.mark.usefixtures("played_shared")
@pytest.mark.parametrize("mark", ["rollout:2", "replays:1", "bucket:2", "retired:all"])
def test_every_kind_of_mark_has_its_questions(open_page, mark):
    page = open_page("run", view="Buffer", run="play-finished", mark=mark)
    assert len(tables(page)[0].value) > 0


@pytest.mark.usefixtures("played_shared")
@pytest.mark.parametrize("mark", ["rollout:99999999999999999999", "flow:**x** [a](http://evil)"])
def test_mark_that_says_nothing_is_a_designed_state_and_no_markup(open_page, mark):
    page = open_page("run", view="Buffer", run="play-finished", mark=mark)
    assert has_text(page, "None at this step")
    assert not has_text(page, "**x**")
    assert not has_text(page, "[a](http")


def test_limits_of_the_buffer_are_named_where_there_are_some():
    assert limits({"buffer_capacity": None}) == ""
    assert limits({"buffer_age": 1}) == ", none older than **1 step**"
    both = {"buffer_capacity": 6000, "buffer_age": 4}
    assert limits(both) == ", at most **6,000** trajectories, none older than **4 steps**"


@pytest.mark.usefixtures("played_shared")
def test_choosing_a_mark_or_another_run_puts_it_into_the_address(open_page):
    page = open_page("run", view="Buffer", run="play-finished", base="4")
    page.selectbox(key="bar-buckets").set_value("bucket:2").run()
    assert page.query_params["mark"] == "bucket:2"
    assert has_text(page, "Questions: in bucket 2")
    page.selectbox(key="against-play-finished").set_value("play-failed").run()
    assert page.query_params["against"] == "play-failed"
    assert page.slider(key="base").value == 4
    page.selectbox(key="against-play-finished").set_value("play-unstarted").run()
    assert page.slider(key="base").value == 3  # it got no further


@pytest.mark.usefixtures("played_shared")
def test_a_question_behind_a_bar_leads_to_its_trajectories(open_page, monkeypatch):
    pick, listed, led = data_table.pick, [], []

    def click_the_first(frame, key, alt, ids, *words, **named):
        if alt != "Questions behind the chosen bar":
            return pick(frame, key, alt, ids, *words, **named)
        listed.append(ids)
        return 0

    monkeypatch.setattr(data_table, "pick", click_the_first)
    monkeypatch.setattr(buffer_charts.st, "switch_page", lambda page, query_params: led.append((page, query_params)))
    open_page("run", view="Buffer", run="play-finished", mark="bucket:2")
    query = {"run": "play-finished", "view": "Trajectories", "question-index": listed[0][0]}
    assert led == [("app_pages/run.py", query)]


@pytest.mark.usefixtures("played_shared")
def test_step_of_another_run_is_compared_with_question_by_question(open_page):
    address = {"run": "play-finished", "against": "play-failed", "step": "14", "base": "6"}
    page = open_page("run", view="Buffer", part="Flow", mark="retired:all", **address)
    assert has_text(page, "From step 6 of broken replay to step 14 of this run")
    question_table = tables(page)[0].value
    assert set(question_table["After step 14 of this run"]) == {"retired"}
    assert "After step 6 of broken replay" in question_table
    assert not has_text(page, "Other questions")


@pytest.mark.usefixtures("played_shared")
@pytest.mark.parametrize(("step", "expected"), [("0", 1), ("**x**\n---\nb", 14), ("1" * 500, 14)])
def test_step_of_the_address_means_the_nearest_and_what_is_none_is_said(open_page, step, expected):
    page = open_page("run", view="Buffer", run="play-finished", step=step, base="70")
    assert (page.slider(key="step").value, page.slider(key="base").value) == (expected, 14)
    assert has_text(page, "which does not exist: showing step 14.") is (step != "0")
    assert not has_text(page, "**x**")
    assert all(len(text) < 500 and "---" not in text.splitlines() for text in texts(page))
