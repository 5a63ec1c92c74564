"""Connections of real sockets that send nothing, or a byte at a time, are ended; those that ask are served."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import uvicorn

from app.serving import connections
from app.serving.connections import TimedConnection
from tests.app import web_server

HEAD = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: " + b"x" * 200 + b"\r\n\r\n"
TIMEOUT_SECONDS = 20.0


async def application(_scope, _receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@contextmanager
def served() -> Iterator[tuple[str, int]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(application, http=TimedConnection, lifespan="off", log_level="warning")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])))
        thread.start()
        try:
            yield listener.getsockname()
        finally:
            server.should_exit = True
            thread.join()


def is_ended(sock: socket.socket, timeout: float) -> bool:
    sock.settimeout(timeout)
    try:
        while sock.recv(100):
            pass
        return True
    except TimeoutError:
        return False
    except ConnectionError:
        return True


@pytest.mark.parametrize("kept_alive", [False, True])
def test_request_that_comes_a_byte_at_a_time_is_ended_before_it_is_whole(monkeypatch, kept_alive):
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.5)
    with served() as address, socket.create_connection(address) as sock:
        if kept_alive:
            sock.sendall(HEAD)
            with sock.makefile("rb") as answer:
                assert answer.readline() == b"HTTP/1.1 200 OK\r\n"
                while answer.readline() != b"\r\n":
                    pass
                assert answer.read(2) == b"ok"
        for number in range(len(HEAD) - 1):
            if is_ended(sock, timeout=0.02):
                break
            sock.send(HEAD[number : number + 1])
        else:
            pytest.fail("every byte but the last was taken")


def test_body_of_an_answered_request_is_not_awaited(monkeypatch):
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.2)
    with served() as address, socket.create_connection(address) as sock:
        sock.sendall(b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000\r\n\r\nbeginning")
        assert is_ended(sock, TIMEOUT_SECONDS)


@pytest.mark.parametrize("num_parts", [1, 50])
@pytest.mark.parametrize("before", [b"", HEAD], ids=["first", "pipelined"])
def test_request_with_too_many_headers_is_refused(num_parts, before):
    lines = b"a:\r\n" * (connections.MAX_HEADERS // num_parts + 1)
    parts = [before + b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n", *[lines] * num_parts, b"\r\n"]
    with served() as address, socket.create_connection(address) as sock:
        with contextlib.suppress(ConnectionError):
            for part in parts if num_parts > 1 else [b"".join(parts)]:
                sock.sendall(part)
        assert received(sock).count(b"200 OK") <= bool(before)


def received(sock):
    """Return what comes until the other side ends the connection, or resets it while more was being sent."""
    sock.settimeout(TIMEOUT_SECONDS)
    content = b""
    with contextlib.suppress(ConnectionError):
        while part := sock.recv(1 << 16):
            content += part
    return content


def test_body_with_many_lines_is_read():
    body = b"\r\n" * connections.MAX_HEADERS
    with served() as address, socket.create_connection(address) as sock:
        sock.sendall(b"POST / HTTP/1.1\r\nConnection: close\r\nHost: 127.0.0.1\r\nContent-Length: 400\r\n\r\n" + body)
        assert b"200 OK" in received(sock)


def test_of_too_many_silent_connections_the_oldest_is_ended_and_requests_are_served(monkeypatch):
    monkeypatch.setattr(connections, "MAX_WAITING", 3)
    with served() as address:
        silent = [socket.create_connection(address) for _ in range(5)]
        assert is_ended(silent[0], TIMEOUT_SECONDS)
        with socket.create_connection(address) as asking:
            asking.sendall(HEAD)
            assert b"200 OK" in asking.recv(1000)
        for sock in silent:
            sock.close()


def test_workbench_ends_a_half_open_connection(tmp_path):
    workbench = web_server.start(tmp_path)
    host, _, port = workbench.netloc.partition(":")
    try:
        with socket.create_connection((host, int(port))) as sock:
            sock.sendall(HEAD[:20])
            assert is_ended(sock, connections.REQUEST_SECONDS + TIMEOUT_SECONDS)
    finally:
        workbench.stop()
