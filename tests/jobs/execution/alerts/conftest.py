"""A server that takes Apprise's JSON messages, or refuses them."""

import json
from collections.abc import Iterator

import pytest

from tests.http_server import Answer, Asked, answering

SECRET = "canary-7f3a91"


class Receiver:
    """What came in so far; `refuses` makes it answer with 500."""

    def __init__(self) -> None:
        self.url = ""
        self.messages: list[dict[str, str]] = []
        self.refuses = False

    @property
    def titles(self) -> list[str]:
        return [message["title"] for message in self.messages]

    def answer(self, asked: Asked) -> Answer:
        if self.refuses:
            return Answer(status=500)
        self.messages.append(json.loads(asked.body))
        return Answer()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    received = Receiver()
    with answering(received.answer) as origin:
        received.url = f"json://{origin.removeprefix('http://')}/hook/{SECRET}"
        yield received
