"""A go-between of a PostgreSQL server that loses answers to COMMIT."""

import contextlib
import random
import socket
import threading
from pathlib import Path

_COMMIT = b"COMMIT\x00"
_CHUNK_BYTES = 1 << 16


class CommitCutter:
    """Listens in a folder of Unix sockets, passes everything on, and cuts some connections at COMMIT.

    Half of those that are cut were heard by the server, whose answer does not come back; half never reached it.
    """

    def __init__(self, folder: Path, server: Path, share: float, rng: random.Random) -> None:
        self.num_commits = self.num_unanswered = self.num_unheard = 0
        self.num_left = 0
        self._share = share
        self._server = str(server / ".s.PGSQL.5432")
        self._rng = rng
        self._lock = threading.Lock()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / ".s.PGSQL.5432"))
        self._listener.listen(20)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(self._server)
            except OSError:
                _end(server)
                _end(client)
                continue
            threading.Thread(target=self._pass_answers, args=(server, client), daemon=True).start()
            threading.Thread(target=self._pass_questions, args=(client, server), daemon=True).start()

    def _pass_answers(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while content := server.recv(_CHUNK_BYTES):
                client.sendall(content)
        _end(client)
        _end(server)

    def _pass_questions(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while content := client.recv(_CHUNK_BYTES):
                if content.endswith(_COMMIT) and self._cuts(client, server, content):
                    return
                server.sendall(content)
        _end(server)
        _end(client)

    def _cuts(self, client: socket.socket, server: socket.socket, content: bytes) -> bool:
        with self._lock:
            self.num_commits += 1
            is_cut = self.num_left > 0 and self._rng.random() < self._share
            is_heard = self._rng.random() < 0.5
            self.num_left -= is_cut
            self.num_unanswered += is_cut and is_heard
            self.num_unheard += is_cut and not is_heard
        if is_cut:
            _end(client)
            if is_heard:
                server.sendall(content)
            else:
                _end(server)
        return is_cut


def _end(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
