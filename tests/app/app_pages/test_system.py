from datetime import UTC, datetime, timedelta

import pytest

from exgrpo.app.components.system import system_view
from exgrpo.app.components.widgets import long_lists
from exgrpo.db.connections.opening import open_database
from exgrpo.db.ingest.events import register_run
from exgrpo.jobs.actions import named_entries
from exgrpo.jobs.machine import machine_report
from exgrpo.jobs.machine.hardware import Gpu
from exgrpo.jobs.machine.machine_report import Check, package_versions
from exgrpo.jobs.runs.journal import Journal, JournalKind
from exgrpo.jobs.runs.launchers.ray_jobs_api import RayClusterState, RayMachine
from tests.app import recorded
from tests.app.page_texts import tables, texts
from tests.tools import free_port

pytestmark = pytest.mark.slow

FINDINGS = [Check("Python", "ok", "3.11.2", ""), Check("GPU", "warning", "none", "Small models need none.")]


def metric(page, label):
    return next(element for element in page.metric if element.label == label)


def test_overview_has_the_supervisor_the_database_and_an_empty_queue(runs_root, open_page):
    page = open_page("system")
    assert metric(page, "Supervisor").value == "running"
    assert metric(page, "Database").value == "SQLite"
    assert any(text.startswith("No run is running") for text in texts(page))
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


def test_ray_clusters_are_added_tested_and_removed(open_page, runs_root):
    page = open_page("system", view="Ray clusters")
    assert any("No clusters yet" in text for text in texts(page))
    address = f"http://127.0.0.1:{free_port()}"
    page.text_input(key="cluster-name").set_value("ours")
    page.text_input(key="cluster-address").set_value("ftp://here")
    page.button[0].click().run()
    assert any("address: expected an address that begins with http" in text.value for text in page.text)
    page.text_input(key="cluster-address").set_value(address)
    page.button[0].click().run()
    assert address in (runs_root / "workbench" / "clusters.json").read_text()
    page.button(key="test-ours").click().run()
    assert any("no Ray cluster can be reached" in text.value for text in page.text)
    page.button(key="remove-ours").click().run()
    assert any("No clusters yet" in text for text in texts(page))


def test_tested_cluster_shows_gpus_jobs_and_what_is_wrong(runs_root, open_page, monkeypatch):
    named_entries.save_cluster(runs_root, "ours", "http://127.0.0.1:8265")
    state = RayClusterState("2.60.0", (RayMachine("a", 8, 3), RayMachine("b", 8, 0)), ("run-0001",), ("It is open.",))
    monkeypatch.setattr(named_entries, "ask_cluster", lambda _root, _name: state)
    page = open_page("system", view="Ray clusters")
    assert not tables(page)
    page.button(key="test-ours").click().run()
    assert any("2 machines, 13 of 16 GPUs free" in text for text in texts(page))
    assert list(tables(page)[0].value["In use"]) == [3, 0]
    assert any("run-0001" in text.value for text in page.text)
    assert any("It is open." in text.value for text in page.text)
