"""Pages of jobs whose spec.json is cut: they show what was recorded, and claim nothing about the settings."""

import pytest

from tests.app import played, recorded
from tests.app.app_pages import test_other_jobs as other_jobs
from tests.app.charts import figures
from tests.app.page_texts import has_text

pytestmark = pytest.mark.slow

CLAIMS = ("This run is on-policy", "vote")


@pytest.fixture(scope="module")
def cut_root(tmp_path_factory):
    root = tmp_path_factory.mktemp("cut")
    runs = (recorded.FINISHED, recorded.ON_POLICY, recorded.QUEUED)
    recorded.record(root, *runs)
    run_ids = [run.run_id for run in runs]
    run_ids += [played.play(root, run).run_id for run in (played.FINISHED, played.ON_POLICY)]
    run_ids += [other_jobs.record_evaluation(root), other_jobs.record_judge(root)]
    recorded.cut_specification(root, *run_ids)
    return root


@pytest.fixture(autouse=True)
def cut_shared(cut_root, share):
    share(cut_root)


@pytest.mark.parametrize(
    ("run_id", "view"), [("run-finished", "Curves"), ("run-finished", "Configuration"), ("run-on-policy", "Curves")]
)
def test_every_view_of_a_training_run_claims_nothing_and_offers_only_what_works(open_page, run_id, view):
    page = open_page("run", run=run_id, view=view)
    assert has_text(page, "Settings cannot be read")
    assert has_text(page, "Newest step: 30") is (view == "Curves")
    assert not any(has_text(page, claim) for claim in CLAIMS)
    shown = {element.label: element.value for element in page.metric}
    assert shown.get("Batch Pass@1") == (f"{100 * recorded.pass_at_1(30):.1f}%" if view == "Curves" else None)
    assert not {"Clone", "Score", "Start branch"} & {button.label for button in page.button}
    assert len(figures(page)) > 5 or view != "Curves"


@pytest.mark.parametrize(
    ("run_id", "view", "last"),
    [("play-finished", "Buckets", 14), ("play-finished", "Retired", None), ("play-on-policy", "Buckets", 3)],
)
def test_replay_buffer_is_shown(open_page, run_id, view, last):
    page = open_page("run", view="Buffer", run=run_id, part=view)
    assert has_text(page, "Settings cannot be read")
    assert not any(has_text(page, claim) for claim in CLAIMS)
    assert [slider.value for slider in page.slider if slider.key == "step"] == ([last] if last else [])


@pytest.mark.parametrize(
    ("view", "run_id", "words"),
    [
        ("Step", "play-finished", "Not executed"),
        ("Trajectories", "run-finished", "trajectories, newest first"),
        ("Buffer", "run-queued", "The address asks for view=Buffer, which does not exist"),
        ("", "run-queued", "It recorded nothing that says what kind of run it is"),
        ("", "scored", "Scores"),
        ("", "voted", "Judge judge, prompt"),
    ],
)
def test_other_tabs_and_jobs_show_what_they_can(open_page, view, run_id, words):
    page = open_page("run", run=run_id, view=view)
    assert has_text(page, words)
    assert has_text(page, "Settings cannot be read")
    assert run_id == "voted" or not has_text(page, "vote")
