"""Pages of `exgrpo view`: they show what the pages of a workbench show, and change nothing."""

import pytest

from exgrpo.app import settings
from exgrpo.app.page_list import NOT_IN_VIEWS, PLACES
from exgrpo.app.queries.runs import has_replays
from exgrpo.jobs.actions import run_actions, run_bin
from exgrpo.jobs.execution.supervisor.indexing import ingest_all
from exgrpo.jobs.runs.people import RefusedError
from exgrpo_core import recording
from tests.app.page_texts import has_text

pytestmark = pytest.mark.slow


@pytest.fixture
def view_shared(seeded_root):
    root = seeded_root("recorded")
    settings.configure(settings.AppSettings(root, is_view=True))
    return root


@pytest.mark.usefixtures("view_shared")
@pytest.mark.parametrize(("name", "query"), [place for place in PLACES if place[0] not in NOT_IN_VIEWS])
def test_every_page_is_shown_without_a_supervisor_and_without_what_starts_or_changes_runs(open_page, name, query):
    page = open_page(name, run="run-finished", **query)
    assert not has_text(page, "No supervisor yet")
    changing = {
        "New run", "Open rollouts", "Stop", "Resume", "Clone", "Score", "Rename", "Archive", "Delete", "Add tag",
    }  # fmt: skip
    assert not changing & {button.label for button in page.button}
    assert not [field for field in page.text_input if field.key == "rollouts-path"]


@pytest.mark.usefixtures("view_shared")
def test_the_form_that_scores_models_is_not_reached_by_its_address_and_no_link_leads_there(open_page):
    page = open_page("benchmarks", start="true", target="owner/model")
    assert not [choice for choice in page.multiselect if choice.key == "evaluate-models"]
    assert has_text(page, "Scores of your checkpoints")
    assert not [element for element in page.get("html") if "start=true" in element.proto.body]


@pytest.mark.usefixtures("view_shared")
def test_an_action_that_changes_something_is_refused_in_a_sentence():
    for action in (run_actions.stop, run_actions.resume, run_bin.delete):
        with pytest.raises(RefusedError, match="These pages only read"):
            action(settings.runs_root(), "run-running")


@pytest.mark.usefixtures("view_shared")
def test_pages_about_replays_are_offered_where_a_run_has_a_buffer(tmp_path):
    assert has_replays()
    run = recording.start("mine", {}, tmp_path)
    run.log(1, {"loss": 1.0}, trajectories=["one"])
    run.finish()
    ingest_all(tmp_path, None)
    settings.configure(settings.AppSettings(tmp_path, is_view=True))
    assert not has_replays()


@pytest.mark.parametrize(("rewards", "title"), [([0.25, 0.5], "Mean reward"), ([0.0, 1.0], "Scores")])
def test_rewards_have_a_curve_whether_or_not_they_say_which_answers_are_correct(open_page, tmp_path, rewards, title):
    run = recording.start("mine", {}, tmp_path)
    run.log(1, {}, trajectories=[{"response": "a text", "reward": reward} for reward in rewards])
    run.finish()
    ingest_all(tmp_path, None)
    settings.configure(settings.AppSettings(tmp_path, is_view=True))
    page = open_page("run", run=run.run_id)
    assert {name for name in ("Mean reward", "Scores") if has_text(page, f"**{name}**")} == {title}
