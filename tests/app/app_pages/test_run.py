import os
import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, datetime

import pytest
import streamlit as st

from exgrpo.app.queries import runs as run_queries
from exgrpo.db.connections.opening import open_database
from exgrpo.db.ingest import events
from exgrpo.jobs.actions import branching
from exgrpo.jobs.actions.queueing import queue_job
from exgrpo.jobs.execution.supervisor.indexing import ingest_all
from exgrpo.jobs.runs.attempts import Heartbeat, write_heartbeat, write_outcome
from exgrpo.jobs.runs.control import Phase
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.journal import Journal, JournalKind
from exgrpo.jobs.runs.processes import identify
from exgrpo.jobs.specs.base import checked
from exgrpo.jobs.specs.evaluation import EvalSpec
from exgrpo.jobs.specs.train import load_preset
from exgrpo_core.recording.run_status import RunStatus
from tests.app import recorded
from tests.app.charts import figures
from tests.app.page_texts import field, has_text, texts
from tests.jobs.training.killed_runs import killed_run

pytestmark = pytest.mark.slow


def labels(elements):
    return [element.label for element in elements]


def metric(page, label):
    return next(element for element in page.metric if element.label == label)


@pytest.mark.usefixtures("recorded_shared")
def test_a_running_run_shows_its_pace_a_finished_one_its_gain_and_a_failed_one_why_each_with_what_can_be_done(
    open_page,
):
    page = open_page("run", run="run-running")
    assert [element.value for element in page.title] == ["exgrpo live"]
    assert metric(page, "Time left").value == "3 s"
    assert metric(page, "Time left").delta == "250 ms per step lately"
    assert metric(page, "Replay buffer").value == "72"
    assert metric(page, "Retired").value == "9"
    assert metric(page, "Replay buffer").delta.endswith("stored, 8 replayed")
    assert not metric(page, "Retired").delta
    assert {"Stop", "Clone"} <= set(labels(page.button))
    assert "Resume" not in labels(page.button)


def test_run_that_was_made_up_says_so(recorded_runs, open_page):
    with closing(sqlite3.connect(recorded_runs / "workbench" / "workbench.db")) as connection, connection:
        connection.execute(
            "UPDATE runs SET spec = json_set(spec, '$.is_synthetic', json('true')) WHERE run_id = 'run-finished'"
        )
    assert has_text(open_page("run", run="run-finished"), "synthetic run")
    assert not has_text(open_page("run", run="run-failed"), "synthetic run")
    page = open_page("run", run="run-finished")
    assert {"Clone", "Branch"} <= set(labels(page.button))
    assert not {"Stop", "Resume"} & set(labels(page.button))
    assert len(figures(page)) == 14
    page = open_page("run", run="run-failed")
    assert recorded.FAILURE in texts(page)
    assert {"Clone and fix", "Resume"} <= set(labels(page.button))
    assert has_text(page, "not finite")


def test_a_run_that_ends_by_its_tokens_says_how_many_it_has(recorded_runs, open_page):
    with closing(sqlite3.connect(recorded_runs / "workbench" / "workbench.db")) as connection, connection:
        connection.execute(
            "UPDATE runs SET spec = json_set(spec, '$.max_generated_tokens', 30000), "
            "summary = json_set(summary, '$.generated_tokens', 25000) WHERE run_id = 'run-running'"
        )
    page = open_page("run", run="run-running")
    assert page.get("progress")[0].proto.text.startswith("Step 18 · 25,000 of 30,000 generated tokens · 83%")
    assert metric(page, "Time left").value == "1 s"  # 18 steps in 25,000 tokens: 3.6 more, each of 250 ms


def test_address_without_a_run_opens_the_newest_that_trains(runs_root, open_page):
    recorded.record(runs_root, recorded.FINISHED)
    evaluation = checked(EvalSpec, {"model": {"source": "m"}, "benchmarks": [{"name": "math500"}]}, "test")
    folder = RunDirectory.create(runs_root, evaluation)
    with closing(open_database(None, runs_root)) as database:
        events.register_run(database, folder.read_run_info(), evaluation.model_dump(mode="json"))
    assert open_page("run").query_params["run"] == "run-finished"


@pytest.mark.parametrize(
    ("run_id", "action", "words", "now"),
    [("run-queued", "stop", "Stopping", "stopped"), ("run-failed", "resume", "Resuming", "queued")],
)
def test_what_was_asked_is_displayed_until_the_database_knows_it(recorded_runs, open_page, run_id, action, words, now):
    page = open_page("run", run=run_id)
    page.button(key=f"run-{action}").click().run()
    assert (page.button(key="run-asked").label, page.button(key="run-asked").disabled) == (words, True)
    assert has_text(page, f" {words.lower()}]")
    entry = Journal(recorded_runs).entries()[-1]
    assert RunDirectory.open(recorded_runs, run_id).stop_requested() is (action == "stop")
    assert (entry.kind is JournalKind.RESUME_ASKED and entry.run_id == run_id) is (action == "resume")
    assert not {"Stop", "Resume"} & set(labels(page.button))
    with closing(sqlite3.connect(recorded_runs / "workbench" / "workbench.db")) as connection, connection:
        connection.execute("UPDATE runs SET status = ? WHERE run_id = ?", (now, run_id))
    st.cache_data.clear()
    page.run()
    assert words not in labels(page.button)
    assert {"Stop", "Resume"} & set(labels(page.button))


def test_a_request_whose_run_is_again_in_the_state_before_is_forgotten(recorded_runs, open_page):
    page = open_page("run", run="run-failed")
    page.button(key="run-resume").click().run()
    attempt = RunDirectory.open(recorded_runs, "run-failed").attempt_path(2)
    attempt.mkdir()
    write_outcome(attempt, RunStatus.FAILED, "again")
    page.run()
    assert "Resume" in labels(page.button)


def test_resume_says_from_which_step(runs_root, open_page):
    run = killed_run(runs_root, 7)
    write_outcome(run.attempt_path(1), RunStatus.FAILED, "killed")
    assert ingest_all(runs_root, None)
    page = open_page("run", run=run.run_id)
    page.button(key="run-resume").click().run()
    assert [toast.value for toast in page.toast] == ["Resumes from step 4."]


@pytest.mark.usefixtures("recorded_shared")
def test_what_a_branch_cannot_change_is_marked_in_the_form(open_page):
    page = open_page("new_run", **{"from": "run-finished", "step": "20", "section": "Data"})
    field(page, "data.num_questions").set_value("70").run()
    assert page.button(key="launch").disabled
    assert any(":red[:material/error: " in element.value for element in page.markdown)


def test_a_branch_leads_to_its_parent_whose_curves_come_before_its_own(recorded_runs, open_page):
    spec = branching.branch_spec(recorded_runs, "run-finished", 20)
    changed = spec.model_copy(update={"optim": spec.optim.model_copy(update={"learning_rate": 2e-5})})
    run_id = branching.branch(recorded_runs, "run-finished", 20, changed)
    assert ingest_all(recorded_runs, None)
    page = open_page("run", run=run_id)
    [link] = [item.proto for item in page.get("page_link") if "run-finished" in item.proto.query_string]
    assert link.label == "continues exgrpo whole from step 20, Learning rate 2e-05"
    assert page.get("progress")[0].proto.text.startswith("Step 20 of 30")
    scores = [trace["name"] for figure in figures(page) for trace in figure["data"] if trace.get("opacity") == 0.3]
    assert {"Held-out Avg@8, of the parent", "Fresh Pass@1, of the parent"} <= {*scores}


def test_refused_commands_are_one_sentence(recorded_runs, open_page):
    page = open_page("new_run", **{"from": "run-finished", "step": "30"})
    assert field(page, "num_steps").value == 60
    shutil.rmtree(RunDirectory.open(recorded_runs, "run-finished").checkpoints_path)
    page.button(key="launch").click().run()
    assert has_text(page, "has no checkpoint at step 30")
    write_outcome(RunDirectory.open(recorded_runs, "run-running").attempt_path(1), RunStatus.FINISHED, "")
    page = open_page("run", run="run-running")
    page.button(key="run-stop").click().run()
    assert has_text(page, "Could not stop")


@pytest.mark.parametrize(
    ("key", "title", "target"), [("run-clone", "New run", None), ("run-score", "Benchmarks", "run-finished@last")]
)
@pytest.mark.usefixtures("recorded_shared")
def test_buttons_lead_to_forms_with_the_runs_values(open_page, key, title, target):
    page = open_page("run", run="run-finished")
    page.button(key=key).click().run()
    assert [element.value for element in page.title] == [title]
    assert (
        (page.multiselect(key="evaluate-models").value == [target]) if target else field(page, "num_steps").value == 30
    )


def test_run_that_the_database_does_not_know_yet_is_waited_for(open_page, runs_root):
    run_id = queue_job(runs_root, load_preset("chains-exgrpo"))
    page = open_page("run", run=run_id)
    assert [title.value for title in page.title] == ["Run"]
    assert {"Queued", "The run starts shortly."} <= set(texts(page))


def test_a_stopping_run_says_what_it_waits_for(recorded_runs, open_page):
    run = RunDirectory.open(recorded_runs, "run-running")
    worker = identify(os.getpid())
    write_heartbeat(run.attempt_path(1), Heartbeat(worker, RunStatus.RUNNING, 60, datetime.now(UTC), Phase.STEP))
    run.request_stop()
    with closing(sqlite3.connect(recorded_runs / "workbench" / "workbench.db")) as connection, connection:
        connection.execute("UPDATE runs SET status = 'stopping' WHERE run_id = 'run-running'")
    page = open_page("run", run="run-running")
    assert has_text(page, "It waits for the running step")


@pytest.mark.usefixtures("recorded_shared")
def test_file_of_curves_holds_every_step_of_every_metric(open_page, exported, monkeypatch):
    monkeypatch.setattr(run_queries, "MAX_CHART_POINTS", 4)
    rows = exported(open_page("run", run="run-finished"), "curves-run-finished")
    assert [row["step"] for row in rows if row["reward/mean"] is not None] == list(range(1, 31))
    assert {row["run"] for row in rows} == {"run-finished"}
