"""Endpoints that users configure: judge, model server, Ray, data sets."""

import http.server
import json
import socket
import threading

import pytest

from jobs.evaluation.benchmark_questions import iterate_rows
from jobs.evaluation.generation import PromptedQuestion
from jobs.evaluation.protocols import HubDataSet
from jobs.evaluation.server_generator import ServerGenerator
from jobs.launchers import ray_jobs_api
from jobs.launchers.local import LaunchError
from jobs.machine.model_server import AddressRefusedError, check_address
from jobs.preflight.local_sources import resolve_source
from jobs.runs.control import TrainingError
from jobs.specs.evaluation import parse_eval_spec
from jobs.specs.judging import parse_judge_spec
from jobs.specs.train import SpecError
from jobs.specs.verl import VerlSpec
from jobs.training.data_rows import DataError, iterate_raw_rows

LINK_LOCAL = (
    "169.254.169.254",
    "169.254.170.2",
    "2852039166",
    "0xa9fea9fe",
    "0251.0376.0251.0376",
    "169.16689662",
    "[fe80::1]",
    "[::ffff:169.254.169.254]",
    "[::169.254.169.254]",
    "[64:ff9b::a9fe:a9fe]",
    "[2002:a9fe:a9fe::1]",
)
NO_SERVER = (
    "ftp://a/v1",
    "file:///etc/passwd",
    "gopher://a:70/",
    "http://user:word@a/v1",
    "http://a/v1?key=3",
    "http://a/v1#x",
    "http:///v1",
    "a/v1",
    "http://[::1",
    "http://a:99999/v1",
)
NO_DATA_SET = (
    "http://169.254.169.254/latest/meta-data",
    "https://example.org/rows.parquet",
    "s3://bucket/rows.parquet",
    "file:///etc/passwd",
    "hf://datasets/a/b/rows.jsonl",
)


def eval_spec(address, **server):
    return parse_eval_spec(
        {
            "generator": "server",
            "model": {"source": "m"},
            "benchmarks": [{"name": "math500"}],
            "server": {"address": address, "model": "m", "num_tries": 1, **server},
        },
        "test",
    )


def open_server(spec):
    return ServerGenerator(spec.server, spec, 1)


def test_link_local_numbers_are_refused_in_every_way_to_write_them(tried):
    for host in LINK_LOCAL:
        with pytest.raises(AddressRefusedError, match="link-local"):
            check_address("server.address", f"http://{host}:8000/v1")
    for host in ("127.0.0.1", "[::1]", "10.0.0.1", "93.184.216.34", "[::ffff:127.0.0.1]", "no-such-host.invalid"):
        check_address("server.address", f"http://{host}:8000/v1")
    tried("forms of link-local addresses", len(LINK_LOCAL))


def test_one_link_local_number_behind_a_name_is_enough_to_refuse_it(monkeypatch):
    numbers = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (number, 0)) for number in ("93.184.216.34", "169.254.1.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: numbers)
    with pytest.raises(AddressRefusedError):
        check_address("server.address", "http://two-faced.example/v1")


def test_what_is_no_plain_web_address_is_refused_in_every_specification(tried):
    for address in NO_SERVER:
        with pytest.raises(SpecError, match="address"):
            eval_spec(address)
        with pytest.raises(SpecError, match="address"):
            parse_judge_spec({"judged": {"run_id": "a"}, "server": {"address": address}}, "test")
    tried("addresses of another kind", len(NO_SERVER))


def test_an_evaluation_asks_no_link_local_server():
    with pytest.raises(TrainingError, match="link-local"):
        open_server(eval_spec("http://169.254.169.254/v1"))


def test_an_evaluation_follows_no_redirect_to_elsewhere():
    asked = []

    class Redirecting(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            asked.append((self.path, self.headers["Host"]))
            self.send_response(307)
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Redirecting)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    generator = open_server(eval_spec(f"http://localhost:{server.server_port}/v1"))
    try:
        with pytest.raises(TrainingError, match="status 307"):
            list(generator.generate([PromptedQuestion("q", "1 + 1 =", (), 0.6)], frozenset({"q"}), 1, 0))
    finally:
        generator.close()
        server.shutdown()
        thread.join()
        server.server_close()
    assert asked == [("/v1/completions", f"localhost:{server.server_port}")]


def test_no_ray_cluster_stands_where_metadata_services_do(tried):
    for host in LINK_LOCAL:
        spec = VerlSpec.model_validate({"ray": {"address": f"http://{host}:8265", "allow_unauthenticated": True}})
        with pytest.raises(LaunchError, match="link-local"):
            ray_jobs_api.check_address(spec, "token")
    ray_jobs_api.check_address(VerlSpec.model_validate({"ray": {"address": "http://10.0.0.1:8265"}}), "token")
    tried("forms of link-local addresses of Ray", len(LINK_LOCAL))


def test_data_sets_and_models_are_files_or_hub_names_and_no_addresses(tried):
    for source in NO_DATA_SET:
        with pytest.raises(SpecError, match="expected an existing file or folder"):
            resolve_source("data.source", source)
    tried("addresses in place of data sets", len(NO_DATA_SET))


def test_a_data_set_leads_nowhere_else_by_what_its_card_names(tmp_path, tried):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}/rows.jsonl"
        names = (address, f"simplecache::{address}", f"zip://rows.jsonl::{address}", "s3://bucket/a.jsonl", "ftp://a/b")
        for number, name in enumerate(names):
            folder = tmp_path / f"set-{number}"
            folder.mkdir()
            card = {"configs": [{"config_name": "default", "data_files": [{"split": "train", "path": name}]}]}
            (folder / "README.md").write_text(f"---\n{json.dumps(card)}\n---\n")
            for rows in (iterate_raw_rows(str(folder), "train"), iterate_rows(None, HubDataSet(str(folder), "train"))):
                with pytest.raises(DataError, match="Protocol not known"):
                    list(rows)
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()
    tried("addresses in data sets' cards", len(names))
