from concurrent.futures import ProcessPoolExecutor
from functools import partial

import pytest

from exgrpo.jobs.actions.named_entries import (
    RAY_CLUSTERS,
    SAVED_VIEWS,
    ask_cluster,
    delete_cluster,
    delete_draft,
    list_clusters,
    list_drafts,
    load_draft,
    save_cluster,
    save_draft,
)
from exgrpo.jobs.runs.journal import Journal
from exgrpo.jobs.runs.launchers.local import LaunchError
from exgrpo.jobs.runs.people import Person, Role, acting_as
from exgrpo.jobs.specs.train import SpecError, load_spec
from exgrpo.jobs.specs.verl import RAY_TOKEN_VARIABLE
from tests.tools import free_port

pytestmark = pytest.mark.slow


def save_some(root, first):
    for number in range(first, first + 10):
        SAVED_VIEWS.save(root, f"view {number}", {"axis": "step"})


def test_writers_at_the_same_time_lose_no_view(tmp_path):
    with ProcessPoolExecutor(2) as pool:
        list(pool.map(partial(save_some, tmp_path), (0, 10)))
    assert set(SAVED_VIEWS.list(tmp_path)) == {f"view {number}" for number in range(20)}


@pytest.mark.parametrize("content", ["{", "[1]", '{"a": 3}'])
def test_a_file_that_cannot_be_read_is_kept_until_it_is_moved_away(tmp_path, content):
    path = tmp_path / "workbench" / "views.json"
    path.parent.mkdir()
    path.write_text(content)
    assert SAVED_VIEWS.list(tmp_path) == {}
    assert str(path) in SAVED_VIEWS.find_fault(tmp_path)
    with pytest.raises(SpecError):
        SAVED_VIEWS.save(tmp_path, "mine", {})
    with pytest.raises(SpecError):
        SAVED_VIEWS.delete(tmp_path, "mine")
    assert path.read_text() == content
    path.unlink()
    SAVED_VIEWS.save(tmp_path, "mine", {"axis": "step"})
    assert (SAVED_VIEWS.list(tmp_path), SAVED_VIEWS.find_fault(tmp_path)) == ({"mine": {"axis": "step"}}, "")


def test_draft_is_a_file_that_a_run_can_be_started_from_and_is_replaced_and_deleted(tmp_path):
    save_draft(tmp_path, "my run", {"name": "my run", "num_steps": 1})
    path = save_draft(tmp_path, "my run", {"name": "my run", "num_steps": 7})
    assert load_spec(path).num_steps == 7
    assert list_drafts(tmp_path) == ["my run"]
    delete_draft(tmp_path, "my run")
    delete_draft(tmp_path, "my run")
    assert list_drafts(tmp_path) == []
    with pytest.raises(SpecError):
        load_draft(tmp_path, "my run")


def test_draft_that_cannot_run_is_kept_and_filled_up_with_defaults(tmp_path):
    save_draft(tmp_path, "a", {"num_steps": None, "optim": {"learning_rate": 2e-6}})
    draft = load_draft(tmp_path, "a")
    assert draft["num_steps"] is None
    assert (draft["optim"]["learning_rate"], draft["optim"]["beta1"]) == (2e-6, 0.9)


@pytest.mark.parametrize("name", ["", "../x", "a/b", "x\n", "<b>"])
def test_name_that_is_no_name_is_refused(tmp_path, name):
    with pytest.raises(SpecError, check=lambda error: error.fields == ("name",)):
        save_draft(tmp_path, name, {})
    with pytest.raises(SpecError, check=lambda error: error.fields == ("name",)):
        SAVED_VIEWS.save(tmp_path, name, {})


def test_clusters_are_kept_without_a_token_and_what_is_done_to_them_is_recorded(tmp_path, monkeypatch):
    monkeypatch.setenv(RAY_TOKEN_VARIABLE, "a-token-of-the-cluster")
    address = f"http://127.0.0.1:{free_port()}"
    with acting_as(Person("ada", Role.ADMIN)):
        save_cluster(tmp_path, "ours", f" {address}/ ")
        assert list_clusters(tmp_path) == {"ours": address}
        assert "a-token" not in (tmp_path / "workbench" / RAY_CLUSTERS.file_name).read_text()
        with pytest.raises(LaunchError):
            ask_cluster(tmp_path, "ours")
        delete_cluster(tmp_path, "ours")
        delete_cluster(tmp_path, "ours")
    assert list_clusters(tmp_path) == {}
    with pytest.raises(SpecError):
        ask_cluster(tmp_path, "ours")
    entries = Journal(tmp_path).entries()
    assert [entry.kind for entry in entries] == ["cluster_added", "cluster_tested", "cluster_removed"]
    assert {(entry.by, entry.data["cluster"], entry.data["address"]) for entry in entries} == {("ada", "ours", address)}


@pytest.mark.parametrize("address", ["localhost:8265", "http://user:secret@host:8265"])
def test_what_is_no_address_of_a_cluster_is_refused(tmp_path, address):
    with pytest.raises(SpecError, check=lambda error: error.fields == ("address",)):
        save_cluster(tmp_path, "ours", address)
    assert list_clusters(tmp_path) == {}


def test_a_cluster_is_not_asked_elsewhere_without_a_token_or_at_a_link_local_address(tmp_path, monkeypatch):
    monkeypatch.delenv(RAY_TOKEN_VARIABLE, raising=False)
    for address in ("http://192.0.2.1:8265", "http://169.254.169.254"):
        save_cluster(tmp_path, "ours", address)
        with pytest.raises(LaunchError):
            ask_cluster(tmp_path, "ours")
