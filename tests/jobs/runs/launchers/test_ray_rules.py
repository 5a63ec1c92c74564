"""What is refused or judged without a cluster."""

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from exgrpo.jobs.execution.supervisor import ray_watch
from exgrpo.jobs.runs.launchers import ray_jobs, ray_jobs_api
from exgrpo.jobs.runs.launchers.local import LaunchError
from exgrpo.jobs.runs.launchers.ray_jobs import Machine, RayJobsLauncher, check_model, check_size
from exgrpo.jobs.runs.launchers.ray_jobs_api import (
    RayJobsApi,
    RayJobsError,
    RayNotReadyError,
    RayUnreachableError,
    check_address,
    is_loopback,
)
from exgrpo.jobs.runs.state import CONTACT_TIMEOUT_SECONDS, read_contact, read_state, write_contact
from exgrpo.jobs.specs.train import TrainSpec
from exgrpo.jobs.specs.verl import RAY_TOKEN_VARIABLE, RaySpec, RewardModelSpec, VerlSpec
from exgrpo_core.recording.run_status import RunStatus
from tests.http_server import Answer, answering
from tests.jobs.runs.launchers.ray_bench import RayBench, ray_spec
from tests.tools import free_port

ELSEWHERE = "http://192.0.2.1:8265"
"""An address of the block for documentation, which nobody has."""


class OpenServer:
    """Answers as a Ray cluster that asks for no token, whose agent reports itself after `num_refused` submissions."""

    num_refused = num_submitted = 0

    def answer(self, asked):
        if asked.path == "/api/version":
            return Answer('{"ray_version": "2.60.0"}')
        if not asked.body:
            return Answer("no such job", 404)
        self.num_submitted += 1
        is_refused = self.num_submitted <= self.num_refused
        return Answer("No available agent to submit job, please try again later.", 500) if is_refused else Answer("{}")


@pytest.fixture
def handler() -> OpenServer:
    return OpenServer()


@pytest.fixture
def open_server(handler) -> Iterator[str]:
    with answering(handler.answer) as origin:
        yield origin


def make_launcher(bench: RayBench, address: str) -> RayJobsLauncher:
    run = bench.run_of(bench.submit(ray_spec(address)))
    run.claim_attempt(1)
    return RayJobsLauncher(run, 1, run.spec())


@pytest.fixture
def launcher(ray_bench: RayBench) -> Iterator[RayJobsLauncher]:
    launcher = make_launcher(ray_bench, f"http://127.0.0.1:{free_port()}")
    yield launcher
    launcher.api.close()


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("http://127.8.9.10:8265", True), ("http://[::1]:8265", True), ("http://localhost:8265", True),
        ("http://127.0.0.1@ray.example:8265", False), ("http://localhost.ray.example", False),
        ("http://0.0.0.0:8265", False), (ELSEWHERE, False),
    ],
)  # fmt: skip
def test_only_this_machines_own_addresses_are_loopback(address, expected):
    assert is_loopback(address) is expected


def test_another_machine_without_a_token_is_refused_at_once_unless_the_user_insists(ray_bench: RayBench, monkeypatch):
    monkeypatch.delenv(RAY_TOKEN_VARIABLE)
    run_id = ray_bench.submit(ray_spec(ELSEWHERE))
    ray_bench.start()
    ray_bench.look_until(run_id, RunStatus.FAILED)
    assert RAY_TOKEN_VARIABLE in ray_bench.reason_of(run_id)
    check_address(VerlSpec(ray=RaySpec(address=ELSEWHERE, allow_unauthenticated=True)), None)


@pytest.mark.parametrize("page", [Answer("<html>", 404), Answer("<html>"), Answer("[]")])
def test_a_server_of_something_else_is_told_as_such(page):
    with answering(lambda _asked: page) as origin, contextlib.closing(RayJobsApi(origin)) as api:
        with pytest.raises(RayJobsError) as refused:
            api.ray_version()
        assert "verl.ray.address" in str(refused.value)


def test_cluster_elsewhere_that_lets_in_everyone_is_refused_even_with_a_token(ray_bench, open_server, monkeypatch):
    monkeypatch.setattr(ray_jobs, "needs_token", lambda _spec: True)
    launcher = make_launcher(ray_bench, open_server)
    with pytest.raises(LaunchError, match="RAY_AUTH_MODE"):
        launcher.prepare(lambda: True)
    launcher.api.close()


@pytest.mark.parametrize("nonce", ["", "of another file"])
def test_runs_root_that_a_machine_does_not_see_is_refused_by_its_name(ray_bench, open_server, monkeypatch, nonce):
    report = {"host": "machine-2", "free_gpus": 8, "free_cpus": 64, "error": "", "nonce": nonce}
    monkeypatch.setattr(RayJobsLauncher, "_probe", lambda *_: [report])
    launcher = make_launcher(ray_bench, open_server)
    with pytest.raises(LaunchError, match="machine-2"):
        launcher.prepare(lambda: True)
    assert "storage-check" not in os.listdir(launcher.attempt_path)
    launcher.api.close()


def test_a_proxy_that_the_environment_names_is_not_asked(open_server, monkeypatch):
    for name in ("HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, open_server)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    api = RayJobsApi("http://ray.invalid:8265", "secret")
    with pytest.raises(RayUnreachableError):
        api.ray_version()
    api.close()


def test_cluster_that_cannot_be_reached_is_a_failure_with_its_address(ray_bench: RayBench, monkeypatch):
    monkeypatch.setattr(ray_jobs, "REACH_SECONDS", 1.0)
    address = f"http://127.0.0.1:{free_port()}"
    run_id = ray_bench.submit(ray_spec(address))
    ray_bench.start()
    ray_bench.look_until(run_id, RunStatus.FAILED)
    assert ray_bench.reason_of(run_id).startswith(address)
    assert ray_bench.supervisor.is_idle


@pytest.mark.parametrize("seconds", [60.0, 0.0])
def test_a_job_is_submitted_again_to_a_cluster_that_has_just_started_for_a_time(
    open_server, handler, seconds, monkeypatch
):
    monkeypatch.setattr(ray_jobs_api, "_START_SECONDS", seconds)
    handler.num_refused = 1
    api = RayJobsApi(open_server)
    if seconds:
        api.submit("RUN-0001", "true", {})
    else:
        with pytest.raises(RayNotReadyError):
            api.submit("RUN-0001", "true", {})
    assert handler.num_submitted == (2 if seconds else 1)
    api.close()


TWO_MACHINES = ray_spec(ELSEWHERE).model_copy(update={"verl": VerlSpec(num_nodes=2, gpus_per_node=8)})
WITH_REWARD_MODEL = TWO_MACHINES.model_copy(update={"reward_model": RewardModelSpec(source="scorer", num_gpus=4)})


@pytest.mark.parametrize(
    ("spec", "machines", "is_taken"),
    [
        *((TWO_MACHINES, free, True) for free in ([(8, 64), (8, 64)], [(8, 36), (8, 24)], [(8, 24), (8, 24), (0, 12)])),
        *((TWO_MACHINES, free, False) for free in ([(4, 64), (15, 64)], [(8, 64), (8, 23)], [(8, 24), (8, 35)])),
        *((TWO_MACHINES, free, False) for free in ([(16, 64)], [])),
        *((WITH_REWARD_MODEL, free, True) for free in ([(8, 36), (8, 24), (4, 12)], [(12, 48), (8, 24)])),
        *((WITH_REWARD_MODEL, free, False) for free in ([(8, 64), (8, 64)], [(8, 36), (8, 24), (4, 11)])),
    ],
)
def test_cluster_needs_room_for_the_gpus_their_cpus_and_the_other_actors(spec: TrainSpec, machines, is_taken):
    found = [Machine("host", *free) for free in machines]
    if is_taken:
        check_size(found, spec)
    else:
        with pytest.raises(LaunchError, match=r"verl\.num_nodes, verl\.gpus_per_node"):
            check_size(found, spec)


MODEL = "Qwen/Qwen2.5-Math-7B"


def machines_of(*facts: dict) -> list[Machine]:
    return [Machine(f"host-{number}", 8, 64, **fact) for number, fact in enumerate(facts)]


@pytest.mark.parametrize(
    ("source", "lacking", "is_taken"),
    [
        (MODEL, {}, True), (MODEL, {"has_model": False}, True),
        (MODEL, {"has_model": False, "is_offline": True}, False), ("/models/7b", {"has_model": False}, False),
    ],
)  # fmt: skip
def test_a_machine_that_lacks_the_model_and_cannot_download_it_is_refused_by_name(source, lacking, is_taken):
    machines = machines_of({}, lacking)
    if is_taken:
        check_model(machines, source)
        return
    with pytest.raises(LaunchError) as error:
        check_model(machines, source)
    assert all(word in str(error.value) for word in ("model.source", source, "host-1"))


def test_each_machine_says_whether_it_has_the_model_as_a_folder_or_in_the_hubs_cache(monkeypatch, tmp_path):
    ray_programs = pytest.importorskip("exgrpo.jobs.runs.launchers.ray_programs", exc_type=ImportError)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert not ray_programs.describe_machine(MODEL)["has_model"]
    snapshot = tmp_path / "hub/models--Qwen--Qwen2.5-Math-7B/snapshots/abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    found = ray_programs.describe_machine(MODEL)
    assert found["has_model"]
    assert found["hub_cache"] == str(tmp_path / "hub")
    assert min(found["free_memory"], found["free_shared_memory"]) > 0
    file = snapshot / "config.json"  # as a GGUF model is one
    has_model = {
        name: ray_programs.describe_machine(str(name))["has_model"] for name in (tmp_path, file, "/nowhere", "")
    }
    assert has_model == {tmp_path: True, file: True, "/nowhere": False, "": True}


def test_contact_of_a_copied_folder_or_a_damaged_one_is_not_believed(launcher):
    path, contact = launcher.attempt_path, launcher.new_contact()
    write_contact(path, contact)
    assert read_contact(path) == contact
    write_contact(path, replace(contact, attempt_path="/elsewhere/attempts/0001"))
    assert read_contact(path) is None
    for content in ("", "[]", "{}", '{"attempt_path": 1}', "\x00"):
        (path / "ray.json").write_text(content)
        assert read_contact(path) is None


def test_attempt_of_which_nobody_heard_is_lost_even_without_a_supervisor(ray_bench: RayBench, launcher):
    run, contact = ray_bench.run_of(launcher.attempt_path.parents[1].name), launcher.new_contact()
    long_ago = time.time() - 3600
    os.utime(launcher.attempt_path, (long_ago, long_ago))
    write_contact(launcher.attempt_path, contact)
    assert read_state(run).status is RunStatus.STARTING
    write_contact(launcher.attempt_path, replace(contact, seen_at=time.time() - CONTACT_TIMEOUT_SECONDS - 1))
    assert read_state(run).status is RunStatus.LOST


@pytest.mark.parametrize(
    ("is_submitted", "has_cluster", "words"),
    [(False, True, "before it submitted"), (True, True, "does not know the job"), (True, False, "out of reach")],
)
def test_run_that_no_cluster_knows_is_lost(
    ray_bench: RayBench, open_server, launcher, monkeypatch, is_submitted, has_cluster, words
):
    monkeypatch.setattr(ray_watch, "CONTACT_TIMEOUT_SECONDS", 0.0)
    launcher = make_launcher(ray_bench, open_server) if has_cluster else launcher
    write_contact(launcher.attempt_path, replace(launcher.new_contact(), is_submitted=is_submitted))
    run_id = launcher.attempt_path.parents[1].name
    ray_bench.start()
    ray_bench.look_until(run_id, RunStatus.LOST)
    assert words in ray_bench.reason_of(run_id)
    launcher.api.close()
