"""Requests to a judge's server: limited in time and size, and retried where that can help.

Tokens are counted here, by what is sent and received: what a server says of them moves no limit.

The outcome is always an answer or a reason; only a refused key or an unknown model, which make all further requests
pointless, raise an error.
"""

import asyncio
import json
import random
import time
from dataclasses import dataclass, replace
from typing import Self

import httpx2

from exgrpo.jobs.machine.model_server import RETRIABLE_STATUSES, key_for, without_key
from exgrpo.jobs.runs.control import TrainingError
from exgrpo.jobs.specs.judging import API_KEY_VARIABLE, JudgeServerSpec

MAX_WAIT_SECONDS = 60.0
_BYTES_PER_TOKEN = 3
"""A low guess, so that texts count as too many tokens, not as too few."""
MAX_BODY_BYTES = 2 << 20
"""Larger answers are not read to the end."""
_CONNECT_SECONDS = 10.0
_HINT_CHARS = 200
_POINTLESS = {401: f"check the key in {API_KEY_VARIABLE}", 403: f"check the key in {API_KEY_VARIABLE}",
              404: "check server.address and server.model"}  # fmt: skip


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
        """Count the tokens that a request used; without an answer to count, all that were reserved."""
        self._num_reserved -= reserved
        self.num_tokens += reserved if used is None else used


def guess_tokens(messages: list[dict[str, str]], max_answer_tokens: int) -> int:
    """Return an estimate of the most tokens that a request can use."""
    num_bytes = sum(_num_bytes(message["content"]) for message in messages)
    return num_bytes // _BYTES_PER_TOKEN + max_answer_tokens


def _num_bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def wait_before(attempt: int, mean_seconds: float, retry_after: float | None) -> float:
    """Return how long to wait before try number `attempt` + 1: random, between 0 and twice a mean that doubles.

    A server's Retry-After is followed up to a minute, with a little jitter added.
    """
    mean = min(MAX_WAIT_SECONDS / 2, mean_seconds * 2.0 ** (attempt - 1))
    jittered = random.uniform(0.0, 2.0 * mean)
    return jittered if retry_after is None else min(MAX_WAIT_SECONDS, retry_after) + min(jittered, 1.0)


@dataclass(frozen=True, slots=True)
class JudgeAnswer:
    """The answer's text, or "" and the reason why there is none.

    `num_tokens` is counted by the texts; without an answer, None for one try and the largest possible number for all.
    """

    text: str
    reason: str
    num_requests: int = 1
    num_tokens: int | None = None
    is_failure: bool = False
    """Whether the server failed, not the question: it was not reached, or answered without a completion."""


@dataclass(frozen=True, slots=True)
class _Try:
    answer: JudgeAnswer
    is_retriable: bool = False
    wait_seconds: float | None = None


class JudgeClient:
    """A client of one server. Use it as an async context manager, in one event loop."""

    def __init__(self, spec: JudgeServerSpec, spending: Spending) -> None:
        """Read the API key.

        Raises:
            AddressRefusedError: The server may not get it.
        """
        self._spec = spec
        self._url = f"{spec.address.rstrip('/')}/chat/completions"
        self._spending = spending
        self._pacer = RequestPacer(spec.requests_per_minute)
        self._key = key_for(spec.address, API_KEY_VARIABLE)
        # No proxies of the environment, and no redirects: both could lead to another address.
        limits = httpx2.Limits(max_connections=spec.num_parallel)
        timeout = httpx2.Timeout(spec.timeout_seconds, connect=_CONNECT_SECONDS)
        self._http = httpx2.AsyncClient(trust_env=False, follow_redirects=False, limits=limits, timeout=timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def ask(self, messages: list[dict[str, str]], key: str) -> JudgeAnswer:
        """Return the server's answer, after several tries if necessary; `key` is the idempotency key of the request.

        Raises:
            SpendCapError: The next try could go over the spend cap.
            TrainingError: The server refuses the key or knows no such model.
        """
        num_tokens = guess_tokens(messages, self._spec.max_tokens)
        attempt = num_spent = 0
        while True:
            attempt += 1
            await self._pacer.wait_turn()
            self._spending.reserve(num_tokens)
            used: int | None = None
            try:
                outcome = await self._try(messages, key)
                used = outcome.answer.num_tokens
            finally:
                self._spending.settle(num_tokens, used)
            num_spent += num_tokens if used is None else used
            if not outcome.is_retriable or attempt == self._spec.num_tries:
                return replace(outcome.answer, num_requests=attempt, num_tokens=num_spent)
            await asyncio.sleep(wait_before(attempt, self._spec.retry_seconds, outcome.wait_seconds))

    async def _try(self, messages: list[dict[str, str]], key: str) -> _Try:
        try:
            # httpx2's timeouts start again with each byte received; this one does not.
            async with asyncio.timeout(self._spec.timeout_seconds):
                return await self._send(messages, key)
        except (TimeoutError, httpx2.TimeoutException):
            return _failed("timeout", is_retriable=True)
        except httpx2.HTTPError as error:
            return _failed(f"connection: {type(error).__name__}", is_retriable=True)

    async def _send(self, messages: list[dict[str, str]], key: str) -> _Try:
        body = {
            "model": self._spec.model,
            "messages": messages,
            "temperature": self._spec.temperature,
            "top_p": self._spec.top_p,
            "max_tokens": self._spec.max_tokens,
            "n": 1,
            "stream": False,
        }
        headers = {"Accept-Encoding": "identity", "Idempotency-Key": key}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        async with self._http.stream("POST", self._url, json=body, headers=headers) as response:
            content = await _read_bounded(response)
            if response.status_code != httpx2.codes.OK:
                return self._refusal(response, content)
            return _failed("answer_too_large") if content is None else self._answer(content, messages)

    def _refusal(self, response: httpx2.Response, content: bytes | None) -> _Try:
        status = response.status_code
        hint = without_key(" ".join((content or b"").decode("utf-8", "replace").split()), self._key)[:_HINT_CHARS]
        if status in _POINTLESS:
            raise TrainingError(f"The judge's server answers {status}; {_POINTLESS[status]} ({hint}).")
        is_retriable = status in RETRIABLE_STATUSES
        # A refused request costs nothing.
        answer = JudgeAnswer("", f"http_{status}", num_tokens=0, is_failure=is_retriable)
        return _Try(answer, is_retriable, _retry_after(response))

    def _answer(self, content: bytes, messages: list[dict[str, str]]) -> _Try:
        """Read a body; only JSON of the known shape with a finished answer counts."""
        try:
            document = json.loads(content)
            choice = document["choices"][0]
            text, finish = choice["message"]["content"], choice.get("finish_reason")
            # The whole message: a thought has a field of its own.
            num_bytes = _num_bytes(json.dumps(choice["message"], ensure_ascii=False))
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return _failed("no_completion_json", is_retriable=True)
        num_tokens = guess_tokens(messages, min(self._spec.max_tokens, num_bytes // _BYTES_PER_TOKEN))
        if not isinstance(text, str) or finish != "stop":
            reason = "answer_cut_off" if finish == "length" else "no_finished_answer"
            return _Try(JudgeAnswer("", reason, num_tokens=num_tokens))
        return _Try(JudgeAnswer(without_key(text, self._key), "", num_tokens=num_tokens))


def _failed(reason: str, is_retriable: bool = False) -> _Try:
    return _Try(JudgeAnswer("", reason, is_failure=is_retriable), is_retriable)


async def _read_bounded(response: httpx2.Response) -> bytes | None:
    """Return the body, None if it is too large."""
    content = bytearray()
    async for chunk in response.aiter_bytes():
        content += chunk
        if len(content) > MAX_BODY_BYTES:
            return None
    return bytes(content)


def _retry_after(response: httpx2.Response) -> float | None:
    text = response.headers.get("Retry-After", "")
    return float(text) if text.isdecimal() and len(text) < 9 else None
