import pytest

from exgrpo.jobs.evaluation import server_generator
from exgrpo.jobs.evaluation.generation import PromptedQuestion, Sample
from exgrpo.jobs.evaluation.server_generator import ServerGenerator
from exgrpo.jobs.runs.control import TrainingError
from exgrpo.jobs.specs.evaluation import API_KEY_VARIABLE, BenchmarkChoice, ServerSpec
from tests.jobs.evaluation.judging.judge_server import Reply, completions, serving
from tests.jobs.evaluation.tiny_evaluations import tiny_evaluation

pytestmark = pytest.mark.slow

BATCH = [PromptedQuestion(name, f"prompt {name}", ({"role": "user", "content": name},), 0.6) for name in "abc"]


def ask(address, batch=BATCH, wanted="abc", num_samples=2, seed=1, **changes):
    server = ServerSpec(address=address, model="m", num_tries=2)
    spec = tiny_evaluation("m", (BenchmarkChoice(name="aime24"),), generator="server", server=server, **changes)
    generator = ServerGenerator(server, spec, num_samples)
    try:
        found = list(generator.generate(batch, frozenset(wanted), num_samples, seed))
    finally:
        generator.close()
    return {item.question_id: item for item in found}


def test_each_wanted_question_is_asked_once_for_all_its_samples():
    with serving(lambda body: completions(f"1 {body['prompt']}", "2")) as server:
        found = ask(server.address, wanted="ac", top_p=0.9)
    assert found["a"].samples == [Sample("1 prompt a", 5, False), Sample("2", 5, False)]
    assert sorted(body["prompt"] for _, body in server.asked) == ["prompt a", "prompt c"]
    path, body = server.asked[0]
    assert path == "/v1/completions"
    sampling = {"n": 2, "temperature": 0.6, "top_p": 0.9, "max_tokens": 12}
    assert body.items() >= (sampling | {"model": "m"}).items()


def test_seed_follows_from_the_question_and_not_from_who_else_is_asked():
    with serving(lambda _body: completions("1", "2")) as server:
        together, alone = ask(server.address), ask(server.address, wanted="b")
        other = ask(server.address, seed=2)
    assert together["b"].seed == alone["b"].seed
    assert len({entry.seed for entry in together.values()}) == 3
    assert other["b"].seed != together["b"].seed
    assert {body["seed"] for _, body in server.asked[:3]} == {item.seed for item in together.values()}


def test_answer_cut_off_by_the_limit_counts_as_truncated():
    with serving(lambda _body: completions("1", "2", finish="length")) as server:
        assert all(sample.is_truncated for sample in ask(server.address)["a"].samples)


@pytest.mark.parametrize(("key", "answer"), [("EMPTY", "the set is EMPTY"), ("7", "17")])
def test_answers_that_hold_a_key_which_is_no_secret_are_graded_as_they_are(monkeypatch, key, answer):
    monkeypatch.setenv(API_KEY_VARIABLE, key)
    with serving(lambda _body: completions(answer, answer)) as server:
        assert {sample.text for item in ask(server.address).values() for sample in item.samples} == {answer}


def test_greedy_answers_are_asked_for_once_and_count_as_often_as_wanted():
    batch = [PromptedQuestion("a", "prompt a", (), 0.0)]
    with serving(lambda body: completions(*["1"] * body["n"])) as server:
        found = ask(server.address, batch=batch, wanted="a", num_samples=4)
    assert [body["n"] for _, body in server.asked] == [1]
    assert [sample.text for sample in found["a"].samples] == ["1"] * 4
    assert len({sample.num_tokens for sample in found["a"].samples}) == 1


def test_settings_of_the_models_files_shape_no_answer_where_the_server_knows_ours(caplog):
    """vLLM takes top_k and repetition_penalty from generation_config.json where a request names none."""
    plain = {"skip_special_tokens": False, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}

    def strict(body):
        unknown = [name for name in plain if name in body]
        if unknown:
            return Reply({"error": f"Unrecognized request argument supplied: {unknown[0]}"}, 400)
        return completions("1", "2")

    with serving(strict) as server:
        assert [sample.text for sample in ask(server.address, wanted="a")["a"].samples] == ["1", "2"]
    assert server.asked[0][1].items() >= plain.items()
    assert len(server.asked) == 1 + len(plain)
    assert all(name in caplog.text for name in plain)
    with serving(lambda _body: completions("1", "2")) as server:
        ask(server.address)
    assert all(body.items() >= plain.items() for _, body in server.asked)


def test_chat_template_is_left_to_the_server():
    choice = {"message": {"content": "hello"}, "finish_reason": "stop"}
    batch = [PromptedQuestion("a", None, ({"role": "user", "content": "hi"},), 0.6)]
    with serving(lambda _body: Reply({"choices": [choice]})) as server:
        found = ask(server.address, batch=batch, wanted="a", num_samples=1)
    assert found["a"].samples[0].text == "hello"
    [(path, body)] = server.asked
    assert (path, body["messages"]) == ("/v1/chat/completions", [{"role": "user", "content": "hi"}])


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(server_generator, "FIRST_WAIT_SECONDS", 0.01)


@pytest.mark.usefixtures("impatient")
def test_busy_server_is_asked_again():
    replies = iter([Reply("", 503), completions("1", "2")])
    with serving(lambda _body: next(replies)) as server:
        assert ask(server.address, wanted="a")["a"].samples[0].text == "1"


@pytest.mark.parametrize(
    ("reply", "num_requests"),
    [(Reply("", 503), 2), (Reply({"error": "no key"}, 401), 1), (completions("only one"), 1), (Reply("<html>"), 1)],
)
@pytest.mark.usefixtures("impatient")
def test_server_that_gives_no_answers_fails_the_evaluation(reply, num_requests):
    with serving(lambda _body: reply) as server, pytest.raises(TrainingError):
        ask(server.address, wanted="a")
    assert len(server.asked) == num_requests
