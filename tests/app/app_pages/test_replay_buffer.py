from dataclasses import replace

import pytest

from tests.app import played, recorded
from tests.app.page_texts import has_text, texts

VIEWS = ["Buckets", "Flow", "Ages and replays", "Over time", "Concentration", "Retired", "What if"]


def test_page_without_runs_says_how_to_begin(open_page):
    assert "No runs yet" in texts(open_page("replay_buffer"))


@pytest.mark.parametrize("page", ["replay_buffer", "selection_audit"])
def test_page_opens_on_the_newest_run_that_replayed(runs_root, open_page, page):
    recorded.record(runs_root, recorded.QUEUED, recorded.ON_POLICY, recorded.FINISHED, recorded.FAILED)
    assert open_page(page).selectbox(key="run-choice").value == "run-finished"


@pytest.mark.usefixtures("played_shared")
@pytest.mark.parametrize(
    ("run_id", "title"),
    [("play-queued", "No steps yet"), ("play-on-policy", "No replay buffer"), ("none", "No such run")],
)
def test_runs_without_a_buffer_are_designed_states(open_page, run_id, title):
    page = open_page("replay_buffer", run=run_id)
    assert not page.exception
    assert title in texts(page)


@pytest.mark.usefixtures("played_shared")
@pytest.mark.parametrize(
    ("run_id", "views"),
    [("play-finished", VIEWS), ("play-unstarted", VIEWS), ("play-running", VIEWS[:1]), ("play-failed", VIEWS[:1])],
)
def test_every_view_is_shown_for_runs_in_every_state(open_page, run_id, views):
    for view in views:
        page = open_page("replay_buffer", run=run_id, view=view)
        assert not page.exception, view
        if run_id != "play-unstarted" and view not in {"Retired", "What if"}:
            assert page.get("plotly_chart"), view


@pytest.mark.usefixtures("played_shared")
@pytest.mark.parametrize(("step", "base"), [("5", "2"), ("2", "5")])
def test_flow_goes_forward_and_its_mark_names_its_questions(open_page, step, base):
    page = open_page("replay_buffer", run="play-finished", step=step, base=base, view="Flow", mark="flow:outside:2")
    assert not page.exception
    assert page.slider(key="step").value == int(step)
    assert has_text(page, "From step 2 to step 5")
    assert has_text(page, "not stored → bucket 2")
    question_table = page.dataframe[0].value
    assert set(question_table["After step 2"]) == {"not stored"}
    assert set(question_table["After step 5"]) == {"bucket 2"}


@pytest.mark.usefixtures("played_shared")
@pytest.mark.parametrize("mark", ["born:2", "replays:1", "bucket:2", "retired:all"])
def test_every_kind_of_mark_has_its_questions(open_page, mark):
    page = open_page("replay_buffer", run="play-finished", mark=mark)
    assert not page.exception
    assert len(page.dataframe[0].value) > 0


@pytest.mark.usefixtures("played_shared")
@pytest.mark.parametrize(
    "mark",
    ["born:x", "nonsense", "flow:", "bucket:99", "born:99999999999999999999"]
    + [f"{kind}:**x** [a](http://evil)" for kind in ("bucket", "flow", "born", "replays")],
)
def test_mark_that_says_nothing_is_a_designed_state_and_no_markup(open_page, mark):
    page = open_page("replay_buffer", run="play-finished", mark=mark)
    assert not page.exception
    assert has_text(page, "None at this step")
    assert not has_text(page, "**x**")
    assert not has_text(page, "[a](http")


@pytest.mark.usefixtures("played_shared")
def test_choosing_a_mark_puts_it_into_the_address(open_page):
    page = open_page("replay_buffer", run="play-finished")
    page.selectbox(key="bar-buckets").set_value("bucket:2").run()
    assert page.query_params["mark"] == "bucket:2"
    assert has_text(page, "Questions: in bucket 2")


@pytest.mark.usefixtures("played_shared")
def test_what_if_changes_nothing_until_a_setting_does(open_page):
    page = open_page("replay_buffer", run="play-finished", view="What if")
    assert has_text(page, "Nothing changes")
    page.selectbox(key="estimator").select("highest entropy").run()
    assert not page.exception
    assert "other trajectory" in list(page.dataframe[0].value["Change"])
    page.number_input(key="sigma").set_value(0.01).run()
    assert not page.exception
    assert {"drawn instead", "not drawn"} <= set(page.dataframe[0].value["Change"])


def test_what_if_of_a_rule_that_scores_nothing_keeps_the_recorded_choices(open_page, runs_root):
    played.play(runs_root, replace(played.FINISHED, run_id="play-random"), trajectory_selection="random")
    page = open_page("replay_buffer", run="play-random", view="What if")
    assert has_text(page, "Nothing changes")
    assert page.selectbox(key="estimator").value == "as recorded (random)"
    page.selectbox(key="estimator").select("lowest entropy").run()
    assert not page.exception
    assert "other trajectory" in list(page.dataframe[0].value["Change"])


def test_what_if_of_a_run_that_draws_otherwise_says_why_there_is_none(open_page, runs_root):
    played.play(runs_root, replace(played.FINISHED, run_id="play-uniform"), question_selection="uniform")
    page = open_page("replay_buffer", run="play-uniform", view="What if")
    assert not page.exception
    assert has_text(page, "by the rule uniform")


def test_what_if_of_a_run_with_a_wider_spread_than_is_offered_changes_nothing(open_page, runs_root):
    played.play(runs_root, replace(played.FINISHED, run_id="play-wide"), bucket_spread=5.0)
    page = open_page("replay_buffer", run="play-wide", view="What if")
    assert not page.exception
    assert page.number_input(key="sigma").value == 5.0
    assert has_text(page, "Nothing changes")


@pytest.mark.usefixtures("played_shared")
def test_what_if_before_any_replay_says_so(open_page):
    page = open_page("replay_buffer", run="play-finished", view="What if", step="1")
    assert "Nothing was replayed in this step" in texts(page)


@pytest.mark.usefixtures("played_shared")
def test_step_of_another_run_is_compared_with_question_by_question(open_page):
    address = {"run": "play-finished", "against": "play-failed", "step": "14", "base": "6"}
    page = open_page("replay_buffer", view="Flow", mark="retired:all", **address)
    assert not page.exception
    assert has_text(page, "From step 6 of broken replay to step 14 of this run")
    question_table = page.dataframe[0].value
    assert set(question_table["After step 14 of this run"]) == {"retired"}
    assert "After step 6 of broken replay" in question_table
    assert not has_text(page, "Other questions")


@pytest.mark.usefixtures("played_shared")
def test_choosing_another_run_keeps_the_step_where_that_run_got_so_far(open_page):
    page = open_page("replay_buffer", run="play-finished", base="4")
    page.selectbox(key="against-play-finished").set_value("play-failed").run()
    assert not page.exception
    assert page.query_params["against"] == "play-failed"
    assert page.slider(key="base").value == 4
    page.selectbox(key="against-play-finished").set_value("play-unstarted").run()
    assert not page.exception
    assert page.slider(key="base").value == 3


@pytest.mark.usefixtures("played_shared")
@pytest.mark.parametrize(
    ("step", "expected"), [("999", 14), ("0", 1), ("-3", 14), ("**x**", 14), ("a\n---\nb", 14), ("1" * 500, 14)]
)
def test_step_of_the_address_means_the_nearest_and_what_is_none_is_said(open_page, step, expected):
    page = open_page("replay_buffer", run="play-finished", step=step, base="70")
    assert not page.exception
    assert (page.slider(key="step").value, page.slider(key="base").value) == (expected, 14)
    assert has_text(page, "which does not exist: showing step 14.") is (step not in {"999", "0"})
    assert not has_text(page, "**x**")
    assert all(len(text) < 500 and "---" not in text.splitlines() for text in texts(page))


@pytest.mark.parametrize(
    ("run_id", "views", "last"), [("play-finished", VIEWS[:-1], 14), ("play-on-policy", VIEWS[:1], 3)]
)
def test_buffer_of_a_run_whose_specification_is_cut_is_shown(played_runs, open_page, run_id, views, last):
    recorded.cut_specification(played_runs, run_id)
    for view in views:
        page = open_page("replay_buffer", run=run_id, view=view)
        assert not page.exception
        assert [title.value for title in page.title] == ["Replay buffer"]
        assert has_text(page, "Settings cannot be read")
        assert not has_text(page, "Not a training run")
        assert not has_text(page, "This run is on-policy")
        assert page.slider(key="step").value == last


def test_job_of_which_nothing_is_known_is_not_said_to_have_no_buffer(played_runs, open_page):
    recorded.cut_specification(played_runs, "play-queued")
    page = open_page("replay_buffer", run="play-queued")
    assert not page.exception
    assert has_text(page, "Settings cannot be read")
    assert not has_text(page, "Not a training run")
