import asyncio
import json

import pytest

from exgrpo.jobs.evaluation.judging.client import JudgeAnswer, JudgeClient, SpendCapError, Spending
from exgrpo.jobs.machine.model_server import KEY_ADDRESSES_VARIABLE
from exgrpo.jobs.runs.control import TrainingError
from exgrpo.jobs.specs.judging import API_KEY_VARIABLE
from tests.jobs.evaluation.judging.chain_runs import server_spec
from tests.jobs.evaluation.judging.judge_server import Reply, completion, serving

MESSAGES = [{"role": "user", "content": "Is it valid?"}]
KEY = "sk-very-secret-0123456789"


def ask(address: str, num_questions: int = 1, spending: Spending | None = None, **changes: object) -> list[JudgeAnswer]:
    server = server_spec(address, **{"num_tries": 2} | changes).server

    async def run() -> list[JudgeAnswer]:
        async with JudgeClient(server, spending or Spending(None, None)) as client:
            return [await client.ask(MESSAGES, f"job/{number}/0") for number in range(num_questions)]

    return asyncio.run(run())


def test_a_finished_answer_comes_back_with_its_tokens(monkeypatch):
    monkeypatch.delenv(API_KEY_VARIABLE, raising=False)
    with serving(lambda _: completion("\\boxed{yes}")) as server:
        [answer] = ask(server.address)
        [body] = server.bodies
    # 12 bytes of prompt, and 48 of {"role": "assistant", "content": "\\\\boxed{yes}"}, three to a token
    assert answer == JudgeAnswer("\\boxed{yes}", "", num_requests=1, num_tokens=4 + 16)
    assert (body["model"], body["temperature"], body["top_p"], body["n"]) == ("judge", 0.6, 0.95, 1)
    assert body["messages"] == MESSAGES
    assert "Authorization" not in server.headers[0]


@pytest.mark.parametrize(
    ("reply", "reason", "num_requests"),
    [
        (Reply("slow down", 429), "http_429", 2),
        (Reply("too long for the model", 400), "http_400", 1),
        (Reply("", 302, {"Location": "http://169.254.169.254/"}), "http_302", 1),
        (Reply('{"choices": [{"message": {"content": "\\\\boxed{y'), "no_completion_json", 2),
        (Reply("[" * 100_000), "no_completion_json", 2),
        (Reply({"choices": [{"message": {"content": None}, "finish_reason": "stop"}]}), "no_finished_answer", 1),
        (Reply({"choices": [{"message": {"content": "\\boxed{yes}"}}]}), "no_finished_answer", 1),
        (completion("\\boxed{yes}", finish="length"), "answer_cut_off", 1),
        (Reply(completion("\\boxed{yes}").content, cut_at=40), "connection: RemoteProtocolError", 2),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_whatever_else_comes_is_no_answer_and_has_a_reason(reply, reason, num_requests):
    with serving(lambda _: reply) as server:
        [answer] = ask(server.address)
    assert (answer.text, answer.reason, answer.num_requests) == ("", reason, num_requests)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(b" " * 1000, piece_bytes=1, pause_seconds=0.05), "timeout"),
        (Reply(b"x" * (40 << 20), piece_bytes=1 << 18), "answer_too_large"),
    ],
    ids=["drip", "large"],
)
def test_an_answer_that_trickles_in_or_is_large_is_not_read_to_its_end(reply, reason):
    with serving(lambda _: reply) as server:
        seconds, spending = 0.4 if reason == "timeout" else 5.0, Spending(None, None)
        [answer] = ask(server.address, spending=spending, timeout_seconds=seconds, num_tries=1)
    assert answer.reason == reason
    assert spending.num_tokens > 0, "what was asked for may have been paid"
    assert server.num_bytes_sent < len(reply.content)


def test_a_second_try_may_succeed_and_its_cost_counts_both():
    replies = [Reply("", 503, {"Retry-After": "0"}), completion("\\boxed{no}")]
    with serving(lambda _: replies.pop(0)) as server:
        spending = Spending(None, None)
        [answer] = ask(server.address, spending=spending)
    assert (answer.text, answer.num_requests, answer.num_tokens) == ("\\boxed{no}", 2, 19)
    assert (spending.num_requests, spending.num_tokens) == (2, 19)


@pytest.mark.parametrize("status", [401, 404])
def test_a_refused_key_or_unknown_model_ends_everything_without_the_key(monkeypatch, status):
    monkeypatch.setenv(API_KEY_VARIABLE, KEY)
    with serving(lambda _: Reply(f"bad key {KEY}", status)) as server:
        monkeypatch.setenv(KEY_ADDRESSES_VARIABLE, f"https://other.example/v1, {server.address}")
        with pytest.raises(TrainingError, match=str(status)) as refusal:
            ask(server.address)
        assert server.headers[0]["Authorization"] == f"Bearer {KEY}"
    assert KEY not in str(refusal.value)


def test_the_same_question_carries_the_same_key_of_its_own():
    with serving(lambda _: Reply("", 500)) as server:
        ask(server.address, num_questions=2)
        keys = [headers["Idempotency-Key"] for headers in server.headers]
    assert keys == ["job/0/0", "job/0/0", "job/1/0", "job/1/0"]


def test_the_cap_on_requests_counts_retries():
    with serving(lambda _: Reply("", 500)) as server:
        with pytest.raises(SpendCapError):
            ask(server.address, spending=Spending(1, None))
        assert len(server.bodies) == 1


def test_the_cap_on_tokens_holds_before_a_request_is_made():
    with serving(lambda _: completion("\\boxed{yes}", reasoning_content="x" * 2_616)) as server:
        spending = Spending(None, 2_000)
        with pytest.raises(SpendCapError):
            ask(server.address, num_questions=3, spending=spending, max_tokens=1_000)
        assert len(server.bodies) == 2
    assert spending.num_tokens == 1_800


def test_a_rate_limit_spreads_requests():
    with serving(lambda _: completion("\\boxed{yes}")) as server:
        ask(server.address, num_questions=4, requests_per_minute=120)
    assert server.started_at[-1] - server.started_at[0] > 0.8  # three gaps of .5, less what the first was late


@pytest.mark.parametrize("claim", [-50_000, 2**70, "NaN", {"of": 5}, None], ids=repr)
def test_what_a_server_says_about_its_use_moves_no_limit(claim):
    """Each answer is 60 bytes of texts, 20 tokens: of a cap of 200, the ninth request could use 20 + 30."""
    with serving(lambda _: completion("\\boxed{yes}", total_tokens=claim)) as server:
        spending = Spending(None, 200)
        with pytest.raises(SpendCapError):
            ask(server.address, num_questions=60, spending=spending, max_tokens=30)
        assert (len(server.bodies), spending.num_tokens) == (9, 180)


@pytest.mark.parametrize("usage", [None, {"total_tokens": {}}])
def test_an_answer_counts_whatever_stands_in_the_place_of_its_use(usage):
    content = json.loads(completion("\\boxed{yes}").content) | {"usage": usage}
    with serving(lambda _: Reply(content)) as server:
        [answer] = ask(server.address)
    assert (answer.text, answer.num_tokens) == ("\\boxed{yes}", 20)


@pytest.mark.parametrize(
    ("message", "num_bytes"),
    [({"reasoning_content": "é" * 300}, 600), ({"thinking": ["a" * 300]}, 300), ({"content": "\ud800" * 100}, 300)],
    ids=["thought", "a list", "lone surrogates"],
)
def test_all_that_a_message_holds_is_counted(message, num_bytes):
    with serving(lambda _: completion("\\boxed{yes}", **message)) as server:
        [answer] = ask(server.address)
    assert num_bytes / 3 < answer.num_tokens < num_bytes / 3 + 40


def test_a_long_answer_counts_no_more_than_it_may_have():
    with serving(lambda _: completion("y" * 90_000)) as server:
        [answer] = ask(server.address, max_tokens=100)
    assert answer.num_tokens == 4 + 100
