import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from jobs.actions import ray_clusters
from jobs.launchers.local import LaunchError
from jobs.runs.journal import Journal, acting_as
from jobs.specs.mistakes import SpecError
from jobs.specs.verl import RAY_TOKEN_VARIABLE
from tests.tools import free_port

TOKEN = "a-token-of-the-cluster"


@pytest.fixture
def website():
    """Return the address of a server that is no Ray, and the paths that it was asked for."""
    asked: list[str] = []

    class Page(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>")

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    thread.join()
    server.server_close()


def test_clusters_are_kept_and_forgotten_without_a_request_or_a_token(tmp_path, website, monkeypatch):
    monkeypatch.setenv(RAY_TOKEN_VARIABLE, TOKEN)
    address, asked = website
    ray_clusters.save_cluster(tmp_path, "ours", f" {address}/ ")
    assert ray_clusters.list_clusters(tmp_path) == {"ours": address}
    assert TOKEN not in (tmp_path / "workbench" / "clusters.json").read_text()
    ray_clusters.delete_cluster(tmp_path, "ours")
    assert ray_clusters.list_clusters(tmp_path) == {}
    assert asked == []


def test_what_is_done_to_clusters_is_recorded(tmp_path, website):
    address, _ = website
    with acting_as("ada"):
        ray_clusters.save_cluster(tmp_path, "ours", address)
        with pytest.raises(LaunchError):
            ray_clusters.ask_cluster(tmp_path, "ours")
        ray_clusters.delete_cluster(tmp_path, "ours")
        ray_clusters.delete_cluster(tmp_path, "ours")
    entries = Journal(tmp_path).entries()
    assert [entry.kind for entry in entries] == ["cluster_added", "cluster_tested", "cluster_removed"]
    assert {(entry.by, entry.data["cluster"], entry.data["address"]) for entry in entries} == {("ada", "ours", address)}


@pytest.mark.parametrize(
    ("name", "address", "sentence"),
    [
        ("ours", "localhost:8265", "address: expected an address that begins with http"),
        ("ours", "http://user:secret@host:8265", "address: expected no user or password"),
        ("", "http://host:8265", "name: expected letters"),
    ],
)
def test_wrong_entries_are_refused_in_one_sentence(tmp_path, name, address, sentence):
    with pytest.raises(SpecError, match=sentence):
        ray_clusters.save_cluster(tmp_path, name, address)
    assert ray_clusters.list_clusters(tmp_path) == {}


def test_address_of_something_else_is_no_cluster(tmp_path, website):
    ray_clusters.save_cluster(tmp_path, "ours", website[0])
    with pytest.raises(LaunchError, match="answers, but not as Ray's dashboard does"):
        ray_clusters.ask_cluster(tmp_path, "ours")


def test_cluster_that_does_not_answer_is_one_sentence(tmp_path):
    ray_clusters.save_cluster(tmp_path, "ours", f"http://127.0.0.1:{free_port()}")
    with pytest.raises(LaunchError, match="no Ray cluster can be reached"):
        ray_clusters.ask_cluster(tmp_path, "ours")


def test_unknown_name_and_addresses_of_metadata_services_are_not_asked(tmp_path):
    with pytest.raises(SpecError, match="there is no such cluster"):
        ray_clusters.ask_cluster(tmp_path, "ours")
    ray_clusters.save_cluster(tmp_path, "ours", "http://169.254.169.254")
    with pytest.raises(LaunchError, match="link-local"):
        ray_clusters.ask_cluster(tmp_path, "ours")


def test_cluster_on_another_machine_is_not_asked_without_a_token(tmp_path, monkeypatch):
    monkeypatch.delenv(RAY_TOKEN_VARIABLE, raising=False)
    ray_clusters.save_cluster(tmp_path, "ours", "http://192.0.2.1:8265")
    with pytest.raises(LaunchError, match="is on another machine"):
        ray_clusters.ask_cluster(tmp_path, "ours")
