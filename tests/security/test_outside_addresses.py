"""Endpoints that users configure: judge, model server, Ray, data sets."""

import json
import socket

import pytest

from exgrpo.jobs.actions.preflight.local_sources import resolve_source
from exgrpo.jobs.actions.queueing import queue_job
from exgrpo.jobs.evaluation.benchmark_questions import iterate_rows
from exgrpo.jobs.evaluation.generation import PromptedQuestion
from exgrpo.jobs.evaluation.protocols import HubDataSet
from exgrpo.jobs.evaluation.server_generator import ServerGenerator
from exgrpo.jobs.machine.model_server import KEY_ADDRESSES_VARIABLE, AddressRefusedError, is_link_local, key_for
from exgrpo.jobs.runs.control import TrainingError
from exgrpo.jobs.runs.directory import CommandError
from exgrpo.jobs.runs.launchers import ray_jobs_api
from exgrpo.jobs.runs.launchers.local import LaunchError
from exgrpo.jobs.specs.base import checked
from exgrpo.jobs.specs.evaluation import API_KEY_VARIABLE as EVAL_KEY
from exgrpo.jobs.specs.evaluation import EvalSpec
from exgrpo.jobs.specs.judging import API_KEY_VARIABLE as JUDGE_KEY
from exgrpo.jobs.specs.judging import JudgeSpec
from exgrpo.jobs.specs.train import SpecError
from exgrpo.jobs.specs.verl import VerlSpec
from exgrpo.jobs.training.data_rows import DataError, iterate_raw_rows
from tests.http_server import Answer, answering
from tests.jobs.evaluation.judging.chain_runs import new_job, record_chains, run_job, server_spec

pytestmark = pytest.mark.slow

INSIDE = "http://169.254.169.254:8000/v1"


def server_evaluation(address):
    server = {"address": address, "model": "m", "num_tries": 1}
    benchmarks = [{"name": "math500"}]
    return {"generator": "server", "model": {"source": "m"}, "benchmarks": benchmarks, "server": server}


def open_server(address):
    spec = checked(EvalSpec, server_evaluation(address), "test")
    return ServerGenerator(spec.server, spec, 1)


@pytest.mark.parametrize(
    ("host", "is_inside"),
    [
        ("169.254.169.254", True), ("2852039166", True), ("0xa9fea9fe", True), ("0251.0376.0251.0376", True),
        ("fe80::1", True), ("::ffff:169.254.169.254", True), ("127.0.0.1", False), ("::1", False), ("10.0.0.1", False),
        ("::ffff:127.0.0.1", False), ("no-such-host.invalid", False),
    ],
)  # fmt: skip
def test_link_local_numbers_are_known_in_every_way_to_write_them(host, is_inside):
    assert is_link_local(host) is is_inside


def test_one_link_local_number_behind_a_name_is_enough(monkeypatch):
    numbers = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (number, 0)) for number in ("93.184.216.34", "169.254.1.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: numbers)
    assert is_link_local("two-faced.example")


@pytest.mark.parametrize(
    ("allowed", "is_sent"),
    [
        ("", False), ("https://judge.example/v1", True), ("https://judge.example:443", True),
        ("http://a.example, https://judge.example", True), ("http://judge.example", False),
        ("https://judge.example:8443", False), ("https://judge.example.evil/", False), ("judge.example", False),
        ("https://judge.example:x", False),
    ],
)  # fmt: skip
def test_a_key_goes_only_to_the_servers_that_the_administrator_allowed(monkeypatch, allowed, is_sent):
    monkeypatch.setenv("KEY", "sk-0123456789")
    monkeypatch.setenv(KEY_ADDRESSES_VARIABLE, allowed)
    if is_sent:
        assert key_for("https://judge.example/v1", "KEY") == "sk-0123456789"
    else:
        with pytest.raises(AddressRefusedError):
            key_for("https://judge.example/v1", "KEY")


def test_a_judge_and_an_evaluation_are_not_queued_for_a_server_that_may_not_get_the_key(tmp_path, monkeypatch):
    for variable in (EVAL_KEY, JUDGE_KEY):
        monkeypatch.setenv(variable, "sk-0123456789")
    spec = checked(EvalSpec, server_evaluation("https://other.example/v1"), "test")
    with pytest.raises(CommandError):
        queue_job(tmp_path, spec)
    with pytest.raises(TrainingError):
        ServerGenerator(spec.server, spec, 1)
    path = tmp_path / "labelled.jsonl"
    path.write_text("{}")
    with pytest.raises(CommandError):
        queue_job(tmp_path, server_spec("https://other.example/v1", judged={"file": str(path)}))
    assert [item.name for item in tmp_path.iterdir()] == ["labelled.jsonl"]


def test_no_evaluation_judge_or_cluster_asks_a_link_local_server(tmp_path):
    with pytest.raises(TrainingError):
        open_server(INSIDE)
    record_chains(tmp_path, [["valid"]])
    with pytest.raises(TrainingError):
        run_job(new_job(tmp_path, server_spec(INSIDE)))
    spec = VerlSpec.model_validate({"ray": {"address": INSIDE, "allow_unauthenticated": True}})
    with pytest.raises(LaunchError):
        ray_jobs_api.check_address(spec, "token")


@pytest.mark.parametrize(
    "address",
    [
        "ftp://a/v1", "file:///etc/passwd", "http://user:word@a/v1", "http://a/v1?key=3", "http://a/v1#x", "http:///v1",
        "a/v1", "http://[::1", "http://a:99999/v1",
    ],
)  # fmt: skip
def test_what_is_no_plain_web_address_is_refused_in_every_specification(address):
    with pytest.raises(SpecError, match="address"):
        open_server(address)
    with pytest.raises(SpecError, match="address"):
        checked(JudgeSpec, {"judged": {"run_id": "a"}, "server": {"address": address}}, "test")


def test_an_evaluation_follows_no_redirect_to_elsewhere():
    asked = []

    def redirect(request):
        asked.append(request.path)
        return Answer(status=307, headers=(("Location", "/elsewhere"),))

    with answering(redirect) as origin:
        generator = open_server(f"{origin.replace('127.0.0.1', 'localhost')}/v1")
        with pytest.raises(TrainingError):
            list(generator.generate([PromptedQuestion("q", "1 + 1 =", (), 0.6)], frozenset({"q"}), 1, 0))
        generator.close()
    assert asked == ["/v1/completions"]


@pytest.mark.parametrize(
    "source",
    ["http://169.254.169.254/latest", "https://example.org/rows.parquet", "s3://bucket/a", "file:///etc/passwd"],
)
def test_data_sets_and_models_are_files_or_hub_names_and_no_addresses(source):
    with pytest.raises(SpecError):
        resolve_source("data.source", source)


def test_a_data_set_leads_nowhere_else_by_what_its_card_names(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}/rows.jsonl"
        for number, name in enumerate((address, f"simplecache::{address}", f"zip://rows.jsonl::{address}")):
            folder = tmp_path / f"set-{number}"
            folder.mkdir()
            card = {"configs": [{"config_name": "default", "data_files": [{"split": "train", "path": name}]}]}
            (folder / "README.md").write_text(f"---\n{json.dumps(card)}\n---\n")
            for rows in (iterate_raw_rows(str(folder), "train"), iterate_rows(None, HubDataSet(str(folder), "train"))):
                with pytest.raises(DataError):
                    list(rows)
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()
