from datetime import UTC, datetime, timedelta

import pytest

from exgrpo.app.components.system import system_view
from exgrpo.app.components.widgets import long_lists
from exgrpo.db.connections.opening import open_database
from exgrpo.db.ingest.events import register_run
from exgrpo.jobs.machine import machine_report
from exgrpo.jobs.machine.hardware import Gpu
from exgrpo.jobs.machine.machine_report import Check, package_versions
from exgrpo.jobs.runs.journal import Journal, JournalKind
from tests.app import recorded
from tests.app.page_texts import tables, texts

pytestmark = pytest.mark.slow

FINDINGS = [Check("Python", "ok", "3.11.2", ""), Check("GPU", "warning", "none", "Small models need none.")]


def metric(page, label):
    return next(element for element in page.metric if element.label == label)


def test_overview_has_the_supervisor_the_database_and_an_empty_queue(runs_root, open_page):
    page = open_page("system")
    assert metric(page, "Supervisor").value == "running"
    assert metric(page, "Database").value == "SQLite"
    assert metric(page, "Queue").value == "0 queued"
    assert [link.proto.query_string for link in page.get("page_link")] == ["state=Active"]
    assert any(text.startswith("Single-user mode") for text in texts(page))
    recorded.beat(runs_root, datetime.now(UTC) - timedelta(minutes=3))
    assert metric(open_page("system"), "Supervisor").value == "not running"
    (runs_root / "workbench" / "supervisor.json").unlink()
    assert metric(open_page("system"), "Supervisor").value == "never ran"


def test_machine_shows_findings_gpus_and_versions(open_page, monkeypatch):
    monkeypatch.setattr(machine_report, "examine_machine", lambda *_: FINDINGS)
    monkeypatch.setattr("exgrpo.jobs.machine.hardware.list_gpus", lambda: [Gpu(0, "H200", 50.0, 10, 100)])
    page = open_page("system", view="Machine")
    findings, versions = tables(page)[0].value, tables(page)[-1].value
    assert list(findings["Checked"]) == ["Python", "GPU"]
    assert list(findings["What to do"]) == ["\N{EN DASH}", "Small models need none."]
    assert "streamlit" in set(versions["Package"])
    assert None in package_versions().values()
    page.session_state["export-gpus"] = True
    page.run()
    assert page.download_button(key="export-gpus-csv").label == "CSV"


def test_log_names_old_runs_too(runs_root, open_page):
    database = open_database(None, runs_root)
    for number in range(101):
        info = {"run_id": f"id-{number}", "name": f"run {number}", "created_at": f"2026-01-01T00:00:00.{number:03}Z"}
        register_run(database, info | {"parent_run_id": None, "branched_from_step": None}, {})
    database.close()
    Journal(runs_root).append(JournalKind.NOTED, "id-0", text="old")
    assert list(tables(open_page("system", view="Audit log"))[0].value["Run"]) == ["run 0"]


def test_every_kind_of_entry_has_words():
    assert set(system_view.WORDS) == {kind.value for kind in JournalKind}


def test_a_long_log_comes_as_it_is_scrolled_and_is_sorted_as_a_whole(runs_root, open_page):
    assert "No entries yet" in texts(open_page("system", view="Audit log"))
    journal = Journal(runs_root)
    for number in range(long_lists.PAGE_SIZE + 3):
        journal.append(JournalKind.NOTED, "run", text=str(number))
    page = open_page("system", view="Audit log")
    assert len(tables(page)[0].value) == long_lists.PAGE_SIZE
    tables(page)[0].send(page, "more", long_lists.PAGE_SIZE)
    newest_first = list(tables(page)[0].value["Details"])
    assert newest_first == [f"text {number}" for number in reversed(range(long_lists.PAGE_SIZE + 3))]
    tables(page)[0].send(page, "sorted", {"name": "When, UTC", "isDescending": False})
    assert list(tables(page)[0].value["Details"]) == newest_first[::-1][: long_lists.PAGE_SIZE]
    for is_descending in (False, True):
        tables(page)[0].send(page, "sorted", {"name": "What", "isDescending": is_descending})
        assert list(tables(page)[0].value["Details"]) == newest_first[: long_lists.PAGE_SIZE]
