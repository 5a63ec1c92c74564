"""A real server on this machine that speaks OpenAI's completions interface and says what it was asked."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = tuple[int, Any]
Answer = Callable[[dict[str, Any]], Reply]


def completions(*texts: str, finish: str = "stop") -> Reply:
    choices = [{"text": text, "finish_reason": finish} for text in texts]
    return 200, {"choices": choices, "usage": {"completion_tokens": 5 * len(texts)}}


class CompletionServer:
    """Answers each request by a function of its body; `asked` keeps (path, body), in order of arrival."""

    def __init__(self, answer: Answer) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        lock = threading.Lock()
        asked = self.asked

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with lock:
                    asked.append((self.path, body))
                status, content = answer(body)
                data = content if isinstance(content, bytes) else json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_parts: object) -> None:
                """Keep quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}/v1"


@contextmanager
def running(answer: Answer) -> Iterator[CompletionServer]:
    completions = CompletionServer(answer)
    thread = threading.Thread(target=completions.server.serve_forever, daemon=True)
    thread.start()
    try:
        yield completions
    finally:
        completions.server.shutdown()
        completions.server.server_close()
        thread.join()
