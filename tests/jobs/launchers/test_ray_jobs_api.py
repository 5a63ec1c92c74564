import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from jobs.launchers.ray_jobs_api import RayJobsApi


class StartingCluster(BaseHTTPRequestHandler):
    """Ray's Jobs API of a cluster whose agent reports itself between the first and the second submission."""

    submissions = 0

    def do_GET(self):
        self.answer(404, "no such job")

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        type(self).submissions += 1
        if self.submissions == 1:
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


def test_a_job_is_submitted_again_to_a_cluster_that_has_just_started():
    with HTTPServer(("127.0.0.1", 0), StartingCluster) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        api = RayJobsApi(f"http://127.0.0.1:{server.server_port}")
        api.submit("RUN-0001", "true", {})
        api.close()
        server.shutdown()
    assert StartingCluster.submissions == 2
