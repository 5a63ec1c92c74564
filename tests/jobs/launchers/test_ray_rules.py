"""What is refused or judged without a cluster."""

import http.server
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from jobs.launchers import ray_jobs
from jobs.launchers.local import LaunchError
from jobs.launchers.ray_jobs import (
    Machine,
    RayJobsLauncher,
    check_gpu_needs,
    check_size,
    check_versions,
    shell_command,
)
from jobs.launchers.ray_jobs_api import RayJobsApi, RayUnreachableError, check_address, is_loopback
from jobs.machine.engine_environments import Pins
from jobs.machine.gpu_needs import GpuNeeds
from jobs.runs.control import RunStatus
from jobs.runs.state import CONTACT_TIMEOUT_SECONDS, read_contact, read_state, write_contact
from jobs.specs.train import TrainSpec
from jobs.specs.verl import RAY_TOKEN_VARIABLE, RaySpec, RewardModelSpec, VerlSpec
from tests.jobs.launchers.ray_bench import RayBench, ray_spec
from tests.tools import free_port

PINS = [Pins("cpu", {"ray": "2.60.0", "verl": "0.9.1"}), Pins("gpu", {"ray": "2.58.1", "verl": "0.9.1"})]
ELSEWHERE = "http://192.0.2.1:8265"
"""An address of the block for documentation, which nobody has."""


class OpenServer(http.server.BaseHTTPRequestHandler):
    """Answers as a Ray cluster does that asks for no token."""

    def do_GET(self):
        body = b'{"version": "4", "ray_version": "2.60.0"}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments):
        pass


@pytest.fixture
def open_server() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), OpenServer)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def make_launcher(bench: RayBench, address: str, **options) -> RayJobsLauncher:
    run_id = bench.submit(ray_spec(address))
    run = bench.run_of(run_id)
    run.claim_attempt(1)
    return RayJobsLauncher(run, 1, run.spec(), **options)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("http://127.0.0.1:8265", True),
        ("http://127.8.9.10:8265", True),
        ("http://[::1]:8265", True),
        ("http://localhost:8265", True),
        ("http://127.0.0.1@ray.example:8265", False),
        ("http://localhost.ray.example", False),
        ("http://0.0.0.0:8265", False),
        (ELSEWHERE, False),
    ],
)
def test_only_this_machines_own_addresses_are_loopback(address, expected):
    assert is_loopback(address) is expected


def test_another_machine_without_a_token_is_refused_at_once(ray_bench: RayBench, monkeypatch):
    monkeypatch.delenv(RAY_TOKEN_VARIABLE)
    run_id = ray_bench.submit(ray_spec(ELSEWHERE))
    ray_bench.start()
    ray_bench.look_until(run_id, RunStatus.FAILED)
    assert "EXGRPO_RAY_TOKEN is not set" in ray_bench.reason_of(run_id)


def test_another_machine_without_a_token_is_taken_when_the_user_insists():
    spec = VerlSpec(ray=RaySpec(address=ELSEWHERE, allow_unauthenticated=True))
    check_address(spec, None)


def test_cluster_elsewhere_that_lets_in_everyone_is_refused_even_with_a_token(ray_bench, open_server, monkeypatch):
    monkeypatch.setattr(ray_jobs, "needs_token", lambda _spec: True)
    launcher = make_launcher(ray_bench, open_server, pins=PINS)
    with pytest.raises(LaunchError, match="needs no token"):
        launcher.prepare(lambda: True)
    launcher.close()


def test_server_that_asks_nobody_for_a_token_is_seen_as_such(open_server):
    api = RayJobsApi(open_server, "secret")
    assert not api.asks_for_token()
    api.close()


def test_a_proxy_that_the_environment_names_is_not_asked(open_server, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", open_server)
    monkeypatch.setenv("ALL_PROXY", open_server)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
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
    assert ray_bench.reason_of(run_id).startswith(f"{address}: no Ray cluster can be reached")
    assert ray_bench.supervisor.is_idle


def test_all_waiting_before_a_start_takes_less_than_a_minute():
    assert ray_jobs.REACH_SECONDS + ray_jobs.PROBE_SECONDS < 60
    assert CONTACT_TIMEOUT_SECONDS + 2 * 10 < 60


def test_submission_without_an_answer_is_no_failure_since_it_may_have_arrived(ray_bench: RayBench):
    launcher = make_launcher(ray_bench, f"http://127.0.0.1:{free_port()}")
    launcher.submit()
    launcher.close()


def test_command_takes_the_shells_place_and_quotes_what_the_shell_would_read():
    assert shell_command("python", "-m", "a", "/runs/a b", "1") == "exec python -m a '/runs/a b' 1"


def machine(free_gpus: int = 8, free_cpus: int = 64, **versions: str | None) -> Machine:
    found = {"ray": "2.60.0", "verl": "0.9.1"} | versions
    return Machine("host-1", free_gpus, free_cpus, "", "", found)


def test_machines_of_either_constraints_file_are_taken():
    check_versions([machine(), machine(ray="2.58.1")], PINS)


def test_machine_with_another_verl_is_refused_by_name():
    with pytest.raises(LaunchError, match=r"host-1: verl is 0\.8\.0, not 0\.9\.1"):
        check_versions([machine(), machine(verl="0.8.0")], PINS)


def test_cluster_with_another_verl_is_refused_before_anything_starts(ray_bench, open_server, monkeypatch):
    monkeypatch.setattr(RayJobsLauncher, "_find_machines", lambda _self, _is_wanted: [machine(verl="0.8.0")])
    launcher = make_launcher(ray_bench, open_server, pins=PINS)
    with pytest.raises(LaunchError, match=r"verl is 0\.8\.0, not 0\.9\.1"):
        launcher.prepare(lambda: True)
    launcher.close()


def test_machine_without_verl_is_refused():
    with pytest.raises(LaunchError, match="verl is missing"):
        check_versions([machine(verl=None)], PINS)


def test_machine_whose_gpus_lack_the_attention_kernel_is_refused_by_name():
    flash, bare = TrainSpec(engine="verl"), replace(machine(), needs=GpuNeeds((), has_kernel=False))
    with pytest.raises(LaunchError, match=r"host-1: verl\.attention: the kernel .* set verl\.attention to sdpa"):
        check_gpu_needs([machine(), bare], flash)
    check_gpu_needs([machine(), replace(bare, free_gpus=0)], flash)
    check_gpu_needs([bare], flash.model_copy(update={"verl": VerlSpec(attention="sdpa")}))
    check_gpu_needs([bare], ray_spec(ELSEWHERE))


TWO_MACHINES = ray_spec(ELSEWHERE).model_copy(update={"verl": VerlSpec(num_nodes=2, gpus_per_node=8)})
WITH_REWARD_MODEL = TWO_MACHINES.model_copy(update={"reward_model": RewardModelSpec(source="scorer", num_gpus=4)})


@pytest.mark.parametrize("machines", [[(8, 64), (8, 64)], [(8, 36), (8, 24)], [(8, 24), (8, 24), (0, 12)]])
def test_cluster_with_room_for_the_gpus_their_cpus_and_the_other_actors_is_taken(machines):
    check_size([machine(*free) for free in machines], TWO_MACHINES)


@pytest.mark.parametrize("machines", [[(4, 64), (15, 64)], [(8, 64), (8, 23)], [(8, 24), (8, 35)], [(16, 64)], []])
def test_cluster_without_that_room_is_refused(machines):
    with pytest.raises(LaunchError, match="2 x 8 GPUs and 60 CPUs are needed"):
        check_size([machine(*free) for free in machines], TWO_MACHINES)


@pytest.mark.parametrize("machines", [[(8, 36), (8, 24), (4, 12)], [(12, 48), (8, 24)], [(8, 24), (16, 48)]])
def test_cluster_with_room_for_the_reward_model_too_is_taken(machines):
    check_size([machine(*free) for free in machines], WITH_REWARD_MODEL)


@pytest.mark.parametrize("machines", [[(8, 64), (8, 64)], [(8, 36), (8, 24), (4, 11)], []])
def test_cluster_without_room_for_the_reward_model_is_refused(machines):
    with pytest.raises(LaunchError, match="2 x 8 GPUs and 4 for the reward model and 72 CPUs"):
        check_size([machine(*free) for free in machines], WITH_REWARD_MODEL)


def test_contact_of_a_copied_folder_is_not_believed(ray_bench: RayBench):
    launcher = make_launcher(ray_bench, "http://127.0.0.1:1")
    path, contact = launcher.attempt_path, launcher.new_contact()
    write_contact(path, contact)
    assert read_contact(path) == contact
    write_contact(path, replace(contact, attempt_path="/elsewhere/attempts/0001"))
    assert read_contact(path) is None
    launcher.close()


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"attempt_path": 1}', "\x00"])
def test_contact_that_is_damaged_is_none(ray_bench: RayBench, content):
    launcher = make_launcher(ray_bench, "http://127.0.0.1:1")
    (launcher.attempt_path / "ray.json").write_text(content)
    assert read_contact(launcher.attempt_path) is None
    launcher.close()


def test_attempt_of_which_nobody_heard_is_lost_even_without_a_supervisor(ray_bench: RayBench):
    launcher = make_launcher(ray_bench, "http://127.0.0.1:1")
    run = ray_bench.run_of(launcher.attempt_path.parents[1].name)
    long_ago = time.time() - 3600
    os.utime(launcher.attempt_path, (long_ago, long_ago))
    write_contact(launcher.attempt_path, launcher.new_contact())
    assert read_state(run).status is RunStatus.STARTING
    write_contact(
        launcher.attempt_path, replace(launcher.new_contact(), seen_at=time.time() - CONTACT_TIMEOUT_SECONDS - 1)
    )
    assert read_state(run).status is RunStatus.LOST
    launcher.close()


def test_supervisor_that_died_before_the_submission_leaves_a_lost_run(ray_bench: RayBench, open_server, monkeypatch):
    launcher = make_launcher(ray_bench, open_server)
    monkeypatch.setattr(RayJobsApi, "job", lambda _self, _name: None)
    write_contact(launcher.attempt_path, launcher.new_contact())
    launcher.close()
    run_id = launcher.attempt_path.parents[1].name
    ray_bench.start()
    ray_bench.look_until(run_id, RunStatus.LOST)
    assert "before it submitted the job to the cluster" in ray_bench.reason_of(run_id)
