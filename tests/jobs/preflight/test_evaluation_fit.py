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
def test_known_names_and_what_is_there_pass_and_others_are_refused_by_field(tmp_path, kind):
    refuse_unknown("model", KNOWN, kind=kind)
    refuse_unknown("model", str(tmp_path), kind=kind)
    for source, revision in (("org/unknown", None), (KNOWN, "v9"), ("not a name", None), ("a//b", None), ("-x-", None)):
        with pytest.raises(SpecError) as refused:
            refuse_unknown("field", source, revision, kind)
        assert refused.value.fields == ("field",)


def test_a_hub_that_is_away_or_not_to_be_asked_refuses_nothing(hub, monkeypatch):
    hub.server_close()
    refuse_unknown("model", "org/unknown")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    refuse_unknown("model", "org/unknown")
