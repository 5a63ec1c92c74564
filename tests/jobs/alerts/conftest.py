"""A server that takes Apprise's JSON messages, or refuses them."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

SECRET = "canary-7f3a91"


class Receiver:
    """What came in so far; `refuses` makes it answer with 500."""

    def __init__(self, port: int) -> None:
        self.url = f"json://127.0.0.1:{port}/hook/{SECRET}"
        self.messages: list[dict[str, str]] = []
        self.refuses = False

    @property
    def titles(self) -> list[str]:
        return [message["title"] for message in self.messages]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            if not received.refuses:
                received.messages.append(json.loads(content))
            self.send_response(500 if received.refuses else 200)
            self.end_headers()

        def log_message(self, *_arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    received = Receiver(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield received
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
