import json

import pytest

from exgrpo.jobs.training.engines.verl_ray.reward import score_by_model
from exgrpo_core.errors import EngineError
from tests.http_server import Answer, answering

pytestmark = pytest.mark.slow

EXTRA_INFO = {"metadata": {"question": "Why?"}, "prompt_text": "templated: Why?"}


class Tokenizer:
    """A tokenizer whose chat template begins with a start token, as Llama's does."""

    bos_token = "<s>"

    @property
    def special_tokens_map(self):
        return {"bos_token": "<s>"}

    def get_chat_template(self):
        return (
            "{{ bos_token }}{% for m in messages %}{{ m.role }}:{{ m.content }}{% if not loop.last %}|{% endif %}"
            "{% endfor %}{% if add_generation_prompt %}unwanted{% endif %}"
        )


class Scorer:
    def __init__(self):
        self.answer = b'{"data": [{"probs": [-3.25]}]}'
        self.address = ""
        self.asked = None

    def score(self, asked):
        self.asked = (asked.path, json.loads(asked.body))
        return Answer(self.answer)


@pytest.fixture
def server():
    scorer = Scorer()
    with answering(scorer.score) as origin:
        scorer.address = origin.removeprefix("http://")
        yield scorer


def score(server):
    return score_by_model("exgrpo", "Because.", "none", EXTRA_INFO, "a/model", server.address, Tokenizer())


def test_the_reward_models_score_is_the_reward_and_there_is_no_verdict(server):
    assert score(server) == {"score": -3.25, "outcome": "", "is_valid": None, "has_code": None}
    path, asked = server.asked
    assert path == "/classify"
    assert asked == {"model": "a/model", "input": "user:Why?|assistant:Because.", "use_activation": False}


@pytest.mark.parametrize("answer", [b"{}", b'{"data": []}', b'{"data": [{"probs": [NaN]}]}', b"no JSON"])
def test_an_answer_without_a_score_is_an_error(server, answer):
    server.answer = answer
    with pytest.raises(EngineError, match="reward model"):
        score(server)


def test_a_server_that_is_gone_is_an_error():
    with pytest.raises(EngineError, match="does not answer"):
        score_by_model("exgrpo", "x", "", EXTRA_INFO, "a/model", "127.0.0.1:9", Tokenizer())
