"""Evaluations and judges on the pages of a run and of all runs, and what people write to any job."""

import re

import pytest
import streamlit as st

from exgrpo.app.components.system import system_view
from exgrpo.db.connections.opening import open_database
from exgrpo.db.ingest import events
from exgrpo.jobs.runs.attempts import write_plan
from exgrpo.jobs.runs.journal import Journal, JournalKind
from tests.app import recorded
from tests.app.page_texts import has_text, tables, texts
from tests.db.queries.test_judging import ingest_job, job_of_votes
from tests.db.recorded_scores import event, record_scores

pytestmark = pytest.mark.slow

VOTES = [("a", 1, "valid", None), ("b", 2, "invalid", None), ("c", 3, "unjudged", None)]


def record_evaluation(root):
    database = open_database(None, root)
    parts = {"format": 0.75, "mine:reward": -1.5}
    run_id = record_scores(database, root, event([4, 0, 2], reward_parts=parts), run_id="scored")
    events.set_status(database, run_id, "finished", attempt=1)
    database.close()
    return run_id


def record_judge(root, run_id="voted", status="running", reason=""):
    database = open_database(None, root)
    ingest_job(database, job_of_votes(root, VOTES, run_id=run_id))
    events.set_status(database, run_id, status, reason, attempt=1)
    database.close()
    return run_id


@pytest.fixture(scope="module")
def jobs_root(tmp_path_factory):
    """A trained run, an evaluation, one that has no score yet, a judge, and one that failed."""
    root = tmp_path_factory.mktemp("jobs")
    recorded.record(root, recorded.FINISHED)
    record_evaluation(root)
    record_judge(root)
    record_judge(root, "spent", "failed", "The spend cap ends the judging.")
    database = open_database(None, root)
    record_scores(database, root, run_id="asking")
    events.set_status(database, "asking", "running", attempt=1)
    database.close()
    (root / "asking" / "evaluation").mkdir()
    write_plan(root / "asking" / "evaluation", 30)
    return root


@pytest.fixture
def jobs_shared(jobs_root, share):
    share(jobs_root)


@pytest.mark.usefixtures("jobs_shared")
def test_list_names_every_kind_of_job_and_filters_by_it(open_page):
    page = open_page("runs")
    table = tables(page)[0].value
    assert set(table["Method"]) == {"ExGRPO", "evaluation", "judging"}
    assert 100.0 in set(table["Progress"][table["Method"] == "evaluation"])

    page.selectbox(key="kind").set_value("Evaluations").run()
    frame = tables(page)[0].value
    assert list(frame)[:4] == ["State", "Run", "Scores", "Data"]
    assert sorted(bool(re.search(r"\d\.\d \(\d+\.\d to \d", scores)) for scores in frame["Scores"]) == [False, True]
    assert "Method" not in frame


@pytest.mark.usefixtures("jobs_shared")
def test_a_training_run_chosen_on_an_evaluations_samples_opens_at_its_first_tab(open_page):
    page = open_page("run", run="scored", view="Samples", on="math500", beside="none")
    page.selectbox(key="run-choice").set_value("run-finished").run()
    assert dict(page.query_params) == {"run": "run-finished"}
    assert not has_text(page, "which does not exist")


@pytest.mark.usefixtures("jobs_shared")
@pytest.mark.parametrize("source", [recorded.FINISHED.run_id, "labels.jsonl"])
def test_a_judge_names_the_run_or_the_file_that_it_judged(jobs_root, open_page, source):
    database = open_database(None, jobs_root)
    ingest_job(database, job_of_votes(jobs_root, VOTES, source=source, run_id=f"of-{source}"))
    database.close()
    st.cache_data.clear()  # answers are shared for a second
    name = "exgrpo whole" if source == recorded.FINISHED.run_id else source
    assert has_text(open_page("run", run=f"of-{source}"), f", on {name}")


@pytest.mark.usefixtures("jobs_shared")
@pytest.mark.parametrize(
    ("source", "is_there"), [("run-finished@30", True), ("gone@30", False), ("run-finished", False)]
)
def test_an_evaluation_leads_to_the_run_that_it_scores_while_it_is_there(jobs_root, open_page, source, is_there):
    database = open_database(None, jobs_root)
    run_id = f"scores-{source.replace('@', '-')}"
    record_scores(database, jobs_root, run_id=run_id, source=source)
    database.close()
    links = [link.proto.label for link in open_page("run", run=run_id).get("page_link")]
    assert ("scores exgrpo whole, step 30" in links) == is_there


def test_note_and_tag_go_into_the_journal_and_what_is_no_tag_is_refused(recorded_runs, open_page):
    page = open_page("run", run="run-finished")
    page.text_input(key="run-new-tag").set_value("baseline")
    next(button for button in page.button if button.label == "Add tag").click().run()
    page.text_area(key="new-note").set_value("look **here**")
    next(button for button in page.button if button.label == "Add note").click().run()
    tagged, noted = Journal(recorded_runs).entries()[-2:]
    assert (tagged.kind, tagged.data) == (JournalKind.TAGGED, {"tag": "baseline"})
    assert (noted.kind, noted.run_id, noted.data) == (JournalKind.NOTED, "run-finished", {"text": "look **here**"})
    page.text_input(key="run-new-tag").set_value("two\u202elines")
    next(button for button in page.button if button.label == "Add tag").click().run()
    assert any("printable characters" in text for text in texts(page))
    assert Journal(recorded_runs).entries()[-1] == noted


def test_queue_names_the_run_that_comes_next(runs_root, open_page, monkeypatch):
    recorded.record(runs_root, recorded.QUEUED, recorded.RUNNING)
    displayed = next(text for text in texts(open_page("runs")) if " queued, next" in text)
    assert displayed.startswith("1 running, 1 queued, next: waits")
    monkeypatch.setattr(system_view, "list_runs", lambda _: [])  # it left the queue while it was counted
    assert system_view.queue_sentence({"queued": 1, "running": 1}) == "1 running, 0 queued"
