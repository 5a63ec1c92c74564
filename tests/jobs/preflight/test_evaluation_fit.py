import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from huggingface_hub import constants

from jobs.preflight.evaluation_fit import refuse_unknown
from jobs.specs.train import SpecError

KNOWN = "org/known"


class Hub(BaseHTTPRequestHandler):
    """Knows one model and one data set of the same name."""

    def do_GET(self):
        path = self.path.partition("?")[0]
        known = [f"/api/{kind}/{KNOWN}" for kind in ("models", "datasets")]
        code, error = (200, "") if path in known else (404, "RepoNotFound")
        if "/revision/" in path:
            code, error = 404, "RevisionNotFound"
        body = json.dumps({"id": KNOWN, "_id": "1", "siblings": [], "tags": [], "private": False}).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        if error:
            self.send_header("X-Error-Code", error)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def hub(monkeypatch):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("kind", ["model", "dataset"])
def test_known_names_and_what_is_there_pass(tmp_path, kind):
    refuse_unknown("model", KNOWN, kind=kind)
    refuse_unknown("model", str(tmp_path), kind=kind)


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("kind", ["model", "dataset"])
def test_a_name_that_the_hub_does_not_know_is_refused(kind):
    with pytest.raises(SpecError, match=f"model: .* {kind} of the Hugging Face hub; the hub has no 'org/unknown'"):
        refuse_unknown("model", "org/unknown", kind=kind)


@pytest.mark.usefixtures("hub")
def test_an_unknown_revision_is_refused():
    with pytest.raises(SpecError, match="org/known has no revision 'v9'"):
        refuse_unknown("model", KNOWN, "v9")


@pytest.mark.parametrize("text", ["not a name", "a//b", "-x-"])
def test_what_can_be_no_name_is_refused_without_asking(text):
    with pytest.raises(SpecError, match="got"):
        refuse_unknown("benchmarks.math500.source", text, kind="dataset")


def test_a_hub_that_is_away_or_not_to_be_asked_refuses_nothing(hub, monkeypatch):
    hub.server_close()
    refuse_unknown("model", "org/unknown")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    refuse_unknown("model", "org/unknown")
