"""A model's server for tests: real HTTP on this machine, judging as the oracle does, or misbehaving as told."""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from exgrpo.jobs.evaluation.judging.items import JudgedItem
from exgrpo.jobs.evaluation.judging.oracles import judge_chain
from exgrpo_core.recording.rows import VoteOutcome

NONCE_LINE = re.compile(r"^<<<([0-9a-f]{24})>>>$", re.MULTILINE)


@dataclass
class Reply:
    """What the server sends: a body as it is, perhaps in pieces with a pause between them."""

    body: bytes | str | dict[str, Any] = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    piece_bytes: int = 0
    pause_seconds: float = 0.0
    cut_at: int | None = None

    @property
    def content(self) -> bytes:
        body = json.dumps(self.body) if isinstance(self.body, dict) else self.body
        return body.encode() if isinstance(body, str) else body


def completion(text: str, finish: str = "stop", total_tokens: object = 120, **message: object) -> Reply:
    choice = {"index": 0, "message": {"role": "assistant", "content": text} | message, "finish_reason": finish}
    return Reply({"choices": [choice], "usage": {"total_tokens": total_tokens}})


def completions(*texts: str, finish: str = "stop") -> Reply:
    choices = [{"text": text, "finish_reason": finish} for text in texts]
    return Reply({"choices": choices, "usage": {"completion_tokens": 5 * len(texts)}})


def judged_texts(body: dict[str, Any]) -> tuple[str, str]:
    parts = NONCE_LINE.split(body["messages"][1]["content"])
    return parts[2].strip("\n"), parts[6].strip("\n")


def judge_as_oracle(body: dict[str, Any]) -> Reply:
    """Answer as a good judge of register chains modulo 10 would."""
    problem, solution = judged_texts(body)
    verdict = judge_chain(JudgedItem("1", problem, solution, details={"modulus": 10}))
    if verdict.outcome is VoteOutcome.VALID:
        return completion("<think>Fine.</think>**Issues Identified:**\n\n- None\n\n\\boxed{yes}")
    issue = verdict.issues[0].value.title()
    return completion(f"**Issues Identified:**\n\n- [Issue 1]: [{issue} Error] - a step\n\n\\boxed{{no}}")


Behaviour = Callable[[dict[str, Any]], Reply]


class JudgeServer:
    """Counts and keeps what it is asked, (path, body) in order of arrival; `behaviour` makes the replies."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.headers: list[dict[str, str]] = []
        self.started_at: list[float] = []
        self.num_bytes_sent = 0
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                outer.serve(self)

            def log_message(self, *_arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_port}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [body for _, body in self.asked]

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        with self._lock:
            self.asked.append((handler.path, body))
            self.headers.append(dict(handler.headers))
            self.started_at.append(time.monotonic())
        try:
            self._reply(handler, self.behaviour(body))
        except (BrokenPipeError, ConnectionResetError):
            handler.close_connection = True

    def _reply(self, handler: BaseHTTPRequestHandler, reply: Reply) -> None:
        content = reply.content
        handler.send_response(reply.status)
        handler.send_header("Content-Length", str(len(content)))
        for name, value in reply.headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        sent = content if reply.cut_at is None else content[: reply.cut_at]
        size = reply.piece_bytes or len(sent) or 1
        for start in range(0, len(sent), size):
            handler.wfile.write(sent[start : start + size])
            handler.wfile.flush()
            self.num_bytes_sent += size
            time.sleep(reply.pause_seconds)
        handler.close_connection = reply.cut_at is not None

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def serving(behaviour: Behaviour = judge_as_oracle) -> Iterator[JudgeServer]:
    server = JudgeServer(behaviour)
    try:
        yield server
    finally:
        server.close()
