import json
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from exgrpo_core.errors import EngineError
from jobs.engines.verl_ray.reward import conversation_text, score_by_model

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


@pytest.fixture
def server():
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.server.asked = (self.path, json.loads(body))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(self.server.answer)

        def log_message(self, *_words):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as served:
        served.answer = b'{"data": [{"probs": [-3.25]}]}'
        thread = Thread(target=served.serve_forever, args=(0.01,))
        thread.start()
        yield served
        served.shutdown()
        thread.join()


def score(server):
    address = f"127.0.0.1:{server.server_address[1]}"
    return score_by_model("exgrpo", "Because.", "none", EXTRA_INFO, "a/model", address, Tokenizer())


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


def test_without_the_questions_own_text_the_prompt_is_scored(server):
    address = f"127.0.0.1:{server.server_address[1]}"
    score_by_model("exgrpo", "x", "", {"metadata": {}, "prompt_text": "p"}, "m", address, Tokenizer())
    assert server.asked[1]["input"] == "user:p|assistant:x"


def test_a_template_without_a_start_token_stays_whole():
    tokenizer = Tokenizer()
    tokenizer.bos_token = None
    assert conversation_text("q", "r", tokenizer).startswith("<s>")
