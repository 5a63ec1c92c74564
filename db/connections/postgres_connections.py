"""Connections to PostgreSQL that give up when the server does not answer, and wait when it is only slow."""

import math
import socket
import struct
import time
from collections.abc import Generator
from contextlib import closing
from typing import Any

import psycopg
from sqlalchemy import Engine, event

CONNECT_SECONDS = 2
TIMEOUT_SECONDS = 1.0
"""After so long without an answer a second connection checks whether the server is alive."""
_CHECK_SECONDS = 1.0
_SSL_REQUEST = struct.pack("!ii", 8, 80877103)
"""A request that every PostgreSQL server answers with one byte, before authentication."""


class _LastTimeout:
    """When the server of an engine last failed to answer, in monotonic seconds."""

    at = -math.inf


class LivenessCheckedConnection(psycopg.Connection[Any]):
    """A connection whose statements may take any time while the server is alive.

    The kernel of a machine accepts data for a stopped server, so no TCP timeout detects it.
    """

    last_timeout = _LastTimeout()
    _pool = None
    """Says to psycopg that a pool, SQLAlchemy's, may hold it until the garbage collector closes it."""

    def wait(self, gen: Generator[Any, Any, Any], *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - psycopg's
        """Wait for the server as psycopg does, and check regularly that it is alive.

        Raises:
            OperationalError: It is not alive; the connection is closed.
        """
        return super().wait(self._watched(gen), *arguments, **options)

    def _watched(self, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        try:
            wanted = next(gen)
            answered_at = time.monotonic()
            while True:
                ready = yield wanted
                if ready:
                    answered_at = time.monotonic()
                elif time.monotonic() - answered_at >= TIMEOUT_SECONDS:
                    self._check_server()
                    answered_at = time.monotonic()
                wanted = gen.send(ready)
        except StopIteration as end:
            return end.value

    def _check_server(self) -> None:
        if not answers(self.info.host, self.info.port):
            self.last_timeout.at = time.monotonic()
            self.pgconn.finish()
            raise psycopg.OperationalError("the server does not answer")


def answers(host: str, port: int) -> bool:
    """Return whether a server answers at this address, or in this folder of Unix sockets, within a second."""
    try:
        with closing(_reach(host, port)) as client:
            client.sendall(_SSL_REQUEST)
            return bool(client.recv(1))
    except OSError:
        return False


def _reach(host: str, port: int) -> socket.socket:
    if not host.startswith("/"):
        return socket.create_connection((host, port), timeout=_CHECK_SECONDS)
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(_CHECK_SECONDS)
    try:
        client.connect(f"{host}/.s.PGSQL.{port}")
    except OSError:
        client.close()
        raise
    return client


def check_liveness(engine: Engine) -> None:
    """Make an engine use such connections."""
    last_timeout = _LastTimeout()

    @event.listens_for(engine, "do_connect")
    def connect(
        _dialect: object, _record: object, words: list[Any], options: dict[str, Any]
    ) -> LivenessCheckedConnection:
        # The pool makes a new connection as soon as one has failed: a second wait for the same server.
        if time.monotonic() - last_timeout.at < _CHECK_SECONDS:
            raise psycopg.OperationalError("the server does not answer")
        options.setdefault("connect_timeout", CONNECT_SECONDS)
        connection = LivenessCheckedConnection.connect(*words, **options)
        connection.last_timeout = last_timeout
        return connection
