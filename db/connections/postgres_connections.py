"""Connections to PostgreSQL that give up a server which does not answer, and wait for one that only takes its time."""

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
"""A server that is silent for so long is asked by the side whether it is there."""
_SIGN_SECONDS = 1.0
_SSL_REQUEST = struct.pack("!ii", 8, 80877103)
"""What any server of PostgreSQL's protocol answers with one byte, before anybody says who he is."""


class _LastTimeout:
    """When the server of an engine was last found silent, in monotonic seconds."""

    at = -math.inf


class LivenessCheckedConnection(psycopg.Connection[Any]):
    """A connection whose statements may take any time, as long as the server lives.

    The kernel of a machine whose server is stopped takes what is sent to it, so that no timeout of TCP tells.
    """

    last_timeout = _LastTimeout()

    def wait(self, gen: Generator[Any, Any, Any], *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - psycopg's
        """Wait for the server as psycopg does, and look now and then whether it is there.

        Raises:
            OperationalError: It is not; the connection is closed.
        """
        return super().wait(self._watched(gen), *arguments, **options)

    def _watched(self, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        try:
            wanted = next(gen)
            heard_at = time.monotonic()
            while True:
                ready = yield wanted
                if ready:
                    heard_at = time.monotonic()
                elif time.monotonic() - heard_at >= TIMEOUT_SECONDS:
                    self._check_server()
                    heard_at = time.monotonic()
                wanted = gen.send(ready)
        except StopIteration as end:
            return end.value

    def _check_server(self) -> None:
        if not gives_sign(self.info.host, self.info.port):
            self.last_timeout.at = time.monotonic()
            self.pgconn.finish()
            raise psycopg.OperationalError("the server does not answer")


def gives_sign(host: str, port: int) -> bool:
    """Return whether a server answers at this address, or in this folder of Unix sockets, within a second."""
    try:
        with closing(_reach(host, port)) as client:
            client.sendall(_SSL_REQUEST)
            return bool(client.recv(1))
    except OSError:
        return False


def _reach(host: str, port: int) -> socket.socket:
    if not host.startswith("/"):
        return socket.create_connection((host, port), timeout=_SIGN_SECONDS)
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(_SIGN_SECONDS)
    try:
        client.connect(f"{host}/.s.PGSQL.{port}")
    except OSError:
        client.close()
        raise
    return client


def check_liveness(engine: Engine) -> None:
    """Let an engine make such connections."""
    last_timeout = _LastTimeout()

    @event.listens_for(engine, "do_connect")
    def connect(
        _dialect: object, _record: object, words: list[Any], options: dict[str, Any]
    ) -> LivenessCheckedConnection:
        # The pool makes a new connection as soon as one has failed: that would be a second wait for the same server.
        if time.monotonic() - last_timeout.at < _SIGN_SECONDS:
            raise psycopg.OperationalError("the server does not answer")
        options.setdefault("connect_timeout", CONNECT_SECONDS)
        connection = LivenessCheckedConnection.connect(*words, **options)
        connection.last_timeout = last_timeout
        return connection
