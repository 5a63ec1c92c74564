"""Connections that are opened and left: a request's head must come in time, and few may be waited for at once."""

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol, h11  # type: ignore[attr-defined]

REQUEST_SECONDS = 10.0
"""How long the head of a request may take from its connection or the last answer on; a browser's is one packet."""
MAX_HEADERS = 200
"""Reading the fifteen thousand that fit into the bytes of a head takes longer than an answer."""
_MAX_HEAD_BYTES = 1 << 16
MAX_WAITING = 256
"""Connections without a request that are kept, far below a process's usual limit of 1,024 files."""


class _BriefHeads(h11.Connection):
    """Reads requests, and refuses one with too many headers before it reads them."""

    def next_event(self) -> Any:  # noqa: ANN401 - as h11 declares it
        """Return the next part of a request."""
        if self.their_state is h11.IDLE:
            head = self.trailing_data[0].partition(b"\r\n\r\n")[0]
            if head.count(b"\n") > MAX_HEADERS:
                raise h11.RemoteProtocolError("too many headers")
        return super().next_event()


class TimedConnection(H11Protocol):
    """Ends a connection whose request does not come in time, however it is dripped; the oldest if too many wait.

    What is left of a body after the answer counts as waiting too: a refused upload is not taken to its end. An upload
    that is being read by its page takes as long as it takes.
    """

    _waiting: ClassVar[dict["TimedConnection", None]] = {}
    _deadline: asyncio.TimerHandle | None = None

    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - as uvicorn gives them
        super().__init__(*arguments, **options)
        self.conn = _BriefHeads(h11.SERVER, _MAX_HEAD_BYTES)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Read a part of a request."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._watch()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Leave the connection to the web socket, which has pings."""
        self._end_waiting()
        super().handle_websocket_upgrade(event)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._end_waiting()
        super().connection_lost(exc)

    def _watch(self) -> None:
        if not self._is_waiting():
            self._end_waiting()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(REQUEST_SECONDS, self.transport.abort)
            self._waiting[self] = None
            if len(self._waiting) > MAX_WAITING:
                next(iter(self._waiting)).transport.abort()

    def _is_waiting(self) -> bool:
        is_answered = self.conn.our_state in {h11.DONE, h11.MUST_CLOSE}
        return self.conn.their_state is h11.IDLE or (self.conn.their_state is h11.SEND_BODY and is_answered)

    def _end_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self._waiting.pop(self, None)
