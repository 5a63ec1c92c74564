"""Pages of jobs whose spec.json is cut: they show what was recorded, and claim nothing about the settings."""

import pytest

from tests.app import played, recorded
from tests.app.app_pages import test_other_jobs as other_jobs
from tests.app.charts import figures
from tests.app.page_texts import has_text

pytestmark = pytest.mark.slow

BUFFER_VIEWS = ["Buckets", "Flow", "Ages and replays", "Over time", "Concentration", "Retired"]
CLAIMS = ("Not a training run", "This run is on-policy", "vote")


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


@pytest.mark.parametrize("view", ["Curves", "Replay buffer", "Configuration"])
@pytest.mark.parametrize("run_id", ["run-finished", "run-on-policy"])
def test_every_view_of_a_training_run_claims_nothing_and_offers_only_what_works(open_page, run_id, view):
    page = open_page("run", run=run_id, view=view)
    assert has_text(page, "Settings cannot be read")
    assert has_text(page, "Newest step: 30")
    assert not any(has_text(page, claim) for claim in CLAIMS)
    batch = next(element for element in page.metric if element.label == "Batch Pass@1")
    assert batch.value == f"{100 * recorded.pass_at_1(30):.1f}%"
    assert not {"Clone", "Score", "Start branch"} & {button.label for button in page.button}
    assert len(figures(page)) > 5 or view != "Curves"


@pytest.mark.parametrize(
    ("run_id", "view", "last"),
    [*(("play-finished", view, 14) for view in BUFFER_VIEWS), ("play-on-policy", "Buckets", 3)],
)
def test_replay_buffer_is_shown(open_page, run_id, view, last):
    page = open_page("replay_buffer", run=run_id, view=view)
    assert [title.value for title in page.title] == ["Replay buffer"]
    assert has_text(page, "Settings cannot be read")
    assert not any(has_text(page, claim) for claim in CLAIMS)
    assert page.slider(key="step").value == last


@pytest.mark.parametrize(
    ("name", "run_id", "words"),
    [
        ("selection_audit", "play-finished", "No audit"),
        ("trajectories", "run-finished", "trajectories, newest first"),
        ("replay_buffer", "run-queued", "Settings cannot be read"),
        ("run", "run-queued", "It recorded nothing that says what kind of run it is"),
        ("run", "scored", "Scores"),
        ("run", "voted", "Judge judge, prompt"),
    ],
)
def test_other_pages_and_jobs_show_what_they_can(open_page, name, run_id, words):
    page = open_page(name, run=run_id)
    assert has_text(page, words)
    assert has_text(page, "Settings cannot be read")
    assert not has_text(page, "Not a training run")
    assert run_id == "voted" or not has_text(page, "vote")
