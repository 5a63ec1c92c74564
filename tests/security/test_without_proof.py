"""Requests without proof that they may: every path of the server, every method, every kind of wrong proof."""

import http.client
import re

import pytest

from exgrpo.app.page_list import PATHS
from exgrpo.app.serving.gate import HEALTH_PATH
from tests.app import web_server

pytestmark = pytest.mark.slow

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
OTHER_PATHS = (
    "/_stcore/host-config", "/_stcore/stream", "/_stcore/metrics", "/_stcore/script-health-check",
    "/_stcore/upload_file/session/file", "/_stcore/bidi-components/a/b", "/_stcore/message", "/_stcore/health/",
    "/_stcore/health/..", "/_stcore/health%00", "/_stcore/health;/run", "/_stcore//health", "/_STCORE/health",
    "/healthz", "/health", "/media/a", "/component/a/b", "/app/static/a", "/static/js/index.js", "/static/../run",
    "/favicon.png", "/manifest.json", "/robots.txt", "/auth/login", "/auth/logout", "/oauth2callback", "//run",
    "/run/", "/%72un", "/./run", "/run%2f", "/RUN", "/new_run?set=name=a", "/..", "/%2e%2e/%2e%2e/etc/passwd", "/*",
)  # fmt: skip


@pytest.fixture(scope="module")
def workbench(tmp_path_factory):
    served = web_server.start(tmp_path_factory.mktemp("runs"))
    yield served
    served.stop()


def wrong_proofs(workbench):
    """Return headers and queries, none of which is the printed link's token or the cookie that it sets."""
    name, _, value = workbench.cookie().partition("=")
    return [
        ({}, ""), ({"Cookie": f"{name}={'0' * 64}"}, ""), ({"Cookie": f"{name}={workbench.token}"}, ""),
        ({"Cookie": f"exgrpo_gate_1={value}"}, ""), ({"Authorization": f"Bearer {workbench.token}"}, ""),
        ({}, f"token={workbench.token[:-1]}"), ({}, "token="),
    ]  # fmt: skip


def test_nothing_but_the_health_check_answers_without_proof(workbench):
    assert re.fullmatch(r"exgrpo_gate_\d+=[0-9a-f]{64}", workbench.cookie())
    proofs = wrong_proofs(workbench)
    connection = http.client.HTTPConnection(workbench.netloc, timeout=60)
    answered = []
    for path in (*PATHS, *OTHER_PATHS):
        for method in METHODS:
            for headers, query in proofs:
                separator = "&" if "?" in path else "?"
                connection.request(method, f"{path}{separator}{query}" if query else path, headers=headers)
                response = connection.getresponse()
                response.read()
                if response.status != 403 or response.getheader("Set-Cookie"):
                    answered.append((method, path, response.status))
    connection.request("GET", HEALTH_PATH)
    assert connection.getresponse().read() == b"ok"
    connection.close()
    assert answered == []
