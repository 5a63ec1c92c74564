from datetime import UTC, datetime, timedelta

import pytest

from app import commands
from app.components.system import audit_log
from jobs.machine.gpus import Gpu
from jobs.machine.machine_report import Finding, examine_machine, package_versions
from jobs.runs.journal import Journal, JournalKind
from tests.app import recorded
from tests.app.page_texts import texts

FINDINGS = [Finding("Python", "ok", "3.11.2", ""), Finding("GPU", "warning", "none", "Small models need none.")]


def metric(page, label):
    return next(element for element in page.metric if element.label == label)


def test_empty_workbench_has_a_supervisor_a_database_and_no_queue(open_page):
    page = open_page("system")
    assert not page.exception
    assert metric(page, "Supervisor").value == "running"
    assert metric(page, "Database").value == "SQLite"
    assert metric(page, "Schema").delta == "up to date"
    assert any(text.startswith("No job is running") for text in texts(page))
    assert any(text.startswith("Single-user mode") for text in texts(page))


@pytest.mark.usefixtures("recorded_runs")
def test_queue_holds_what_waits_and_what_runs(open_page):
    page = open_page("system")
    assert metric(page, "Queue").value == "1 queued"
    assert sorted(page.dataframe[0].value["State"]) == ["queued", "running"]


def test_supervisor_that_failed_is_away_since_its_last_sign(runs_root, open_page):
    recorded.beat(runs_root, datetime.now(UTC) - timedelta(minutes=3))
    assert metric(open_page("system"), "Supervisor").value == "not running"
    (runs_root / "workbench" / "supervisor.json").unlink()
    assert metric(open_page("system"), "Supervisor").value == "never ran"


def test_machine_shows_findings_gpus_and_versions(open_page, monkeypatch):
    monkeypatch.setattr(commands, "examine_machine", lambda: FINDINGS)
    page = open_page("system", view="Machine")
    assert not page.exception
    findings, versions = page.dataframe[0].value, page.dataframe[-1].value
    assert list(findings["Checked"]) == ["Python", "GPU"]
    assert list(findings["What to do"]) == ["\N{EN DASH}", "Small models need none."]
    assert "streamlit" in set(versions["Package"])


def test_gpus_can_be_downloaded(open_page, monkeypatch):
    monkeypatch.setattr(commands, "examine_machine", lambda: FINDINGS)
    monkeypatch.setattr(commands, "list_gpus", lambda: [Gpu(0, "H200", 50.0, 10, 100)])
    page = open_page("system", view="Machine")
    page.session_state["export-gpus"] = True
    page.run()
    assert not page.exception
    assert page.download_button(key="export-gpus-csv").label == "CSV"


def test_doctor_of_another_process_says_the_same_in_rows(runs_root):
    result_by_check = {finding.name: finding.result for finding in examine_machine(runs_root, None)}
    assert result_by_check["Python"] == "ok"
    assert {"PyTorch", "GPU", "verl engine", "database"} <= set(result_by_check)


def test_versions_of_packages_that_are_not_there_are_none():
    versions = package_versions()
    assert versions["streamlit"]
    assert None in versions.values()


def test_log_is_newest_first_and_names_runs(recorded_runs, open_page):
    Journal(recorded_runs).append(JournalKind.TAGGED, "run-finished", tag="<b>")
    page = open_page("system", view="Audit log")
    assert not page.exception
    log = page.dataframe[0].value
    assert (log["What"][0], log["Run"][0], log["Details"][0]) == (
        "tagged",
        "exgrpo whole",
        "tag <b>",
    )
    assert log["What"].iloc[-1] == "queued a job"


def test_long_log_is_paged(runs_root, open_page):
    journal = Journal(runs_root)
    for number in range(audit_log.PAGE_SIZE + 3):
        journal.append(JournalKind.NOTED, "run", text=str(number))
    page = open_page("system", view="Audit log")
    assert len(page.dataframe[0].value) == audit_log.PAGE_SIZE
    page.number_input(key="log-page").set_value(2).run()
    assert list(page.dataframe[0].value["Details"]) == [f"text {number}" for number in (2, 1, 0)]


def test_empty_log_says_what_will_stand_there(open_page):
    assert "No entries yet" in texts(open_page("system", view="Audit log"))


def test_every_kind_of_entry_has_words():
    assert set(audit_log.WORDS) == {kind.value for kind in JournalKind}
