"""Limits of requests to a judge: rate, waits between tries, and a spend cap."""

import asyncio
import random
import time
from dataclasses import dataclass

MAX_WAIT_SECONDS = 60.0
_CHARS_PER_TOKEN = 3
"""A low guess, used only until the server reports its count of tokens."""


class SpendCapError(RuntimeError):
    """The next request could go over the spend cap."""


class RequestPacer:
    """Spaces requests evenly, up to a number a minute."""

    def __init__(self, requests_per_minute: int | None) -> None:
        self._gap = 60.0 / requests_per_minute if requests_per_minute else 0.0
        self._next_at = 0.0

    async def wait_turn(self) -> None:
        """Return when the next request may start."""
        now = time.monotonic()
        start_at = max(now, self._next_at)
        self._next_at = start_at + self._gap
        if start_at > now:
            await asyncio.sleep(start_at - now)


@dataclass(slots=True)
class Spending:
    """Requests and tokens spent so far; `reserve` before a request, `settle` after it."""

    max_requests: int | None
    max_tokens: int | None
    num_requests: int = 0
    num_tokens: int = 0
    _num_reserved: int = 0

    def reserve(self, num_tokens: int) -> None:
        """Reserve one request of at most this many tokens.

        Raises:
            SpendCapError: It could exceed the cap.
        """
        if self.max_requests is not None and self.num_requests >= self.max_requests:
            raise SpendCapError(f"the cap of {self.max_requests} requests is reached")
        if self.max_tokens is not None and self.num_tokens + self._num_reserved + num_tokens > self.max_tokens:
            raise SpendCapError(f"the next request could go over the cap of {self.max_tokens} tokens")
        self.num_requests += 1
        self._num_reserved += num_tokens

    def settle(self, reserved: int, used: int | None) -> None:
        """Count the tokens that a request used; if the server gave no count, all that were reserved."""
        self._num_reserved -= reserved
        self.num_tokens += reserved if used is None else used


def guess_tokens(messages: list[dict[str, str]], max_answer_tokens: int) -> int:
    """Return an estimate of the most tokens that a request can use."""
    num_chars = sum(len(message["content"].encode()) for message in messages)
    return num_chars // _CHARS_PER_TOKEN + max_answer_tokens


def wait_before(attempt: int, mean_seconds: float, retry_after: float | None) -> float:
    """Return how long to wait before try number `attempt` + 1: random, between 0 and twice a mean that doubles.

    A server's Retry-After is followed up to a minute, with a little jitter added.
    """
    mean = min(MAX_WAIT_SECONDS / 2, mean_seconds * 2.0 ** (attempt - 1))
    jittered = random.uniform(0.0, 2.0 * mean)
    return jittered if retry_after is None else min(MAX_WAIT_SECONDS, retry_after) + min(jittered, 1.0)
