import json
from dataclasses import replace

import pytest

from app.components.system import machine_view
from db.connections.opening import open_database
from db.ingest import events
from exgrpo_core.bounded_json import seal
from jobs.runs.journal import Journal, JournalKind
from tests.app import played, recorded
from tests.app.page_texts import has_text, texts
from tests.db.queries.test_judging import ingest_job, job_of_votes
from tests.db.recorded_scores import event, record_scores

VOTES = [("a", 1, "valid", None), ("b", 2, "invalid", None), ("c", 3, "unjudged", None)]


@pytest.fixture
def evaluation(runs_root):
    """A finished evaluation of one benchmark."""
    database = open_database(None, runs_root)
    parts = {"format": 0.75, "mine:reward": -1.5}
    run_id = record_scores(database, runs_root, event([4, 0, 2], reward_parts=parts), run_id="scored")
    events.set_status(database, run_id, "finished", attempt=1)
    database.close()
    return run_id


@pytest.fixture
def judge(runs_root):
    """A running judge, with one valid, one invalid and one unjudged response."""
    database = open_database(None, runs_root)
    ingest_job(database, job_of_votes(runs_root, VOTES))
    events.set_status(database, "voted", "running", attempt=1)
    database.close()
    return "voted"


def test_evaluation_shows_its_scores_and_no_curves(evaluation, open_page):
    page = open_page("run", run=evaluation)
    assert not page.exception
    assert not page.get("plotly_chart")
    scores = page.dataframe[0].value
    score_by_scheme = dict(zip(scores["Scored"], scores["Score"], strict=True))
    assert score_by_scheme == {"paper": 50.0, "training": 0.0}
    rewards = page.dataframe[1].value
    assert rewards.to_dict("list") == {
        "Benchmark": ["AIME 2024"] * 2, "Part": ["format", "mine:reward"], "Mean": [0.75, -1.5],
    }  # fmt: skip
    assert not {"Clone", "Start branch"} & {button.label for button in page.button}


@pytest.mark.parametrize("view", ["Log", "Configuration", "Attempts"])
def test_other_views_of_an_evaluation_open(evaluation, open_page, view):
    page = open_page("run", run=evaluation, view=view)
    assert not page.exception
    assert "Checkpoints" not in texts(page)


def test_evaluation_without_scores_says_when_they_come(runs_root, open_page):
    database = open_database(None, runs_root)
    run_id = record_scores(database, runs_root, run_id="asking")
    events.set_status(database, run_id, "running", attempt=1)
    database.close()
    (runs_root / run_id / "evaluation").mkdir()
    plan = seal(json.dumps({"num_questions": {"aime24": 30}}).encode())
    (runs_root / run_id / "evaluation" / "plan.json").write_bytes(plan)
    page = open_page("run", run=run_id)
    assert not page.exception
    assert "No score yet" in texts(page)
    assert page.get("progress")[0].proto.text.startswith("0 of 30 questions")


def test_failed_judge_says_why(judge, runs_root, open_page):
    database = open_database(None, runs_root)
    events.set_status(database, judge, "failed", "The spend cap ends the judging.", attempt=1)
    database.close()
    page = open_page("run", run=judge)
    assert not page.exception
    assert "The spend cap ends the judging." in texts(page)


def test_judge_shows_verdicts_and_why_some_are_none(judge, open_page):
    page = open_page("run", run=judge)
    assert not page.exception
    displayed = {element.label: element.value for element in page.metric}
    assert (displayed["Valid"], displayed["Not valid"], displayed["Unjudged"], displayed["Tokens"]) == (
        "1",
        "1",
        "1",
        "30",
    )
    assert page.dataframe[0].value.to_numpy().tolist() == [["no_box", 1]]


@pytest.mark.usefixtures("evaluation", "judge")
def test_list_names_every_kind_of_job_and_filters_by_it(runs_root, open_page):
    recorded.record(runs_root, recorded.FINISHED)
    page = open_page("runs")
    table = page.dataframe[0].value
    assert sorted(table["Method"]) == ["ExGRPO", "evaluation", "judging"]
    assert dict(zip(table["Method"], table["Progress"], strict=True))["evaluation"] == 100.0
    page.selectbox(key="kind").set_value("Evaluations").run()
    assert not page.exception
    assert list(page.dataframe[0].value["Method"]) == ["evaluation"]


def test_note_and_tag_go_into_the_journal(recorded_runs, open_page):
    page = open_page("run", run="run-finished")
    page.text_input(key="run-new-tag").set_value("baseline")
    next(button for button in page.button if button.label == "Add tag").click().run()
    page.text_area(key="new-note").set_value("look **here**")
    next(button for button in page.button if button.label == "Add note").click().run()
    assert not page.exception
    tagged, noted = Journal(recorded_runs).entries()[-2:]
    assert (tagged.kind, tagged.data) == (JournalKind.TAGGED, {"tag": "baseline"})
    assert (noted.kind, noted.run_id, noted.data) == (JournalKind.NOTED, "run-finished", {"text": "look **here**"})


def test_tag_that_is_no_tag_is_refused_in_one_sentence(recorded_runs, open_page):
    num_entries = len(Journal(recorded_runs).entries())
    page = open_page("run", run="run-finished")
    page.text_input(key="run-new-tag").set_value("two\u202elines")
    next(button for button in page.button if button.label == "Add tag").click().run()
    assert any("printable characters" in text for text in texts(page))
    assert len(Journal(recorded_runs).entries()) == num_entries


def test_queue_names_the_run_that_comes_next(runs_root, open_page):
    recorded.record(runs_root, recorded.QUEUED, recorded.RUNNING)
    displayed = next(text for text in texts(open_page("runs")) if " queued, next" in text)
    assert displayed.startswith("1 running, 1 queued, next: waits")


def test_run_that_left_the_queue_while_it_was_counted_is_not_waiting(monkeypatch):
    monkeypatch.setattr(machine_view, "list_runs", lambda _: [])
    assert machine_view.queue_sentence({"queued": 1, "running": 1}) == "1 running, 0 queued"


def test_run_that_chose_against_its_scores_has_a_red_banner(runs_root, open_page):
    def change(report):
        for index, selection in enumerate(report.selections):
            report.selections[index] = replace(selection, chosen=(int(selection.scores.argmax()),))

    played.play(runs_root, played.FINISHED, change)
    page = open_page("run", run=played.FINISHED.run_id)
    assert not page.exception
    assert any("contradict their scores" in text for text in texts(page))


@pytest.mark.usefixtures("played_runs")
def test_run_that_chose_well_has_no_banner_and_shows_its_ratios(open_page):
    page = open_page("run", run=played.FINISHED.run_id)
    assert not any("contradict their scores" in text for text in texts(page))
    assert any("Importance ratios by trajectory" in text for text in texts(page))


@pytest.mark.parametrize(("job", "words"), [("evaluation", "Scores"), ("judge", "Judge judge, prompt")])
def test_job_whose_specification_is_cut_shows_its_results(runs_root, open_page, request, job, words):
    run_id = request.getfixturevalue(job)
    recorded.cut_specification(runs_root, run_id)
    page = open_page("run", run=run_id)
    assert not page.exception
    assert has_text(page, "Settings cannot be read")
    assert has_text(page, words)
