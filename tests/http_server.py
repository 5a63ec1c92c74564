"""A server of HTTP on this machine: a function from what is asked to what is answered."""

import threading
from contextlib import contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class Asked(NamedTuple):
    path: str
    headers: Message
    body: bytes


class Answer(NamedTuple):
    body: str | bytes = b""
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


@contextmanager
def answering(answer, port=0):
    """Serve on this or any free port until the block ends; yield the origin."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            given = answer(Asked(self.path, self.headers, body))
            content = given.body.encode() if isinstance(given.body, str) else given.body
            self.send_response(given.status)
            for name, value in (("Content-Length", str(len(content))), *given.headers):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def do_POST(self):
            self.do_GET()

        def log_message(self, *_arguments):
            pass

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
