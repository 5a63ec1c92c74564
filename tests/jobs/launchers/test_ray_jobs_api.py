import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from jobs.launchers import ray_jobs_api
from jobs.launchers.ray_jobs_api import RayJobsApi, RayNotReadyError


class StartingCluster(BaseHTTPRequestHandler):
    """Ray's Jobs API of a cluster whose agent reports itself after `num_refused` submissions."""

    num_refused = 0
    num_submitted = 0

    def do_GET(self):
        self.answer(404, "no such job")

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        type(self).num_submitted += 1
        if self.num_submitted <= self.num_refused:
            self.answer(500, "No available agent to submit job, please try again later.")
        else:
            self.answer(200, '{"submission_id": "RUN-0001"}')

    def answer(self, status, text):
        self.send_response(status)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        """Print nothing."""


@contextmanager
def starting_cluster(num_refused: int) -> Iterator[tuple[RayJobsApi, type[StartingCluster]]]:
    """Serve a cluster that refuses the first `num_refused` jobs; give its API and its counts."""
    handler = type("Handler", (StartingCluster,), {"num_refused": num_refused})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        api = RayJobsApi(f"http://127.0.0.1:{server.server_port}")
        try:
            yield api, handler
        finally:
            api.close()
            server.shutdown()


def test_a_job_is_submitted_again_to_a_cluster_that_has_just_started():
    with starting_cluster(1) as (api, handler):
        api.submit("RUN-0001", "true", {})
    assert handler.num_submitted == 2


def test_a_cluster_whose_agent_never_answers_is_named_with_the_log_that_says_why(monkeypatch):
    monkeypatch.setattr(ray_jobs_api, "_START_SECONDS", 0.0)
    with starting_cluster(9) as (api, _), pytest.raises(RayNotReadyError, match=r"dashboard_agent\.log on the head"):
        api.submit("RUN-0001", "true", {})
