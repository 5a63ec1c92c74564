"""A real Ray cluster of one machine: loopback, ports of its own, and a token."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from pathlib import Path

import httpx2
import psutil

from exgrpo.jobs.machine.engine_environments import EngineEnvironmentError, engine_python
from tests.tools import free_ports
from tests.verl_on_cpu import VARIABLES

TOKEN = "f" * 64
MARK = "EXGRPO_TEST_CLUSTER"
START_SECONDS = 150.0
NUM_GPUS = 2


def find_ray() -> Path | None:
    try:
        ray = Path(engine_python("verl")).with_name("ray")
    except EngineEnvironmentError:
        return None
    return ray if ray.is_file() else None


class RayCluster:
    """Starts a head with two logical GPUs. Its processes, and its jobs', carry a mark by which they are ended."""

    def __init__(self, ray: Path) -> None:
        self._ray = ray
        self._mark = uuid.uuid4().hex
        self._folder = Path(tempfile.mkdtemp(prefix="ray", dir="/tmp"))  # sockets have short paths only
        self._ports = free_ports(4)
        self.address = f"http://127.0.0.1:{self._ports[1]}"
        self._process: subprocess.Popen | None = None

    def start(self) -> None:
        gcs, dashboard, agent, client = self._ports
        options = {
            "--port": gcs, "--dashboard-port": dashboard, "--dashboard-agent-listen-port": agent,
            "--ray-client-server-port": client, "--dashboard-host": "127.0.0.1", "--node-ip-address": "127.0.0.1",
            "--num-cpus": 3 * NUM_GPUS + 12, "--num-gpus": NUM_GPUS, "--object-store-memory": 80_000_000,
            "--min-worker-port": 0, "--max-worker-port": 0, "--temp-dir": self._folder / "t",
        }  # fmt: skip
        command = [str(self._ray), "start", "--head", "--include-dashboard=true", "--disable-usage-stats", "--block"]
        command += [f"{name}={value}" for name, value in options.items()]
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "COV_"))}
        environment |= VARIABLES | {
            MARK: self._mark,
            # Ray's agents would else blot out the mark by their title, outlive the cluster and compute on.
            "SPT_NOENV": "1",
            "PATH": f"{self._ray.parent}:{os.environ['PATH']}",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": TOKEN,
        }
        with (self._folder / "ray.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._wait_until_up()

    def _wait_until_up(self) -> None:
        give_up_at = time.monotonic() + START_SECONDS
        headers = {"Authorization": f"Bearer {TOKEN}"}
        while True:
            try:
                if httpx2.get(f"{self.address}/api/version", headers=headers, trust_env=False).is_success:
                    return
            except httpx2.HTTPError:
                pass
            assert time.monotonic() < give_up_at, (self._folder / "ray.log").read_text()
            time.sleep(0.2)

    def processes(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            try:
                if process.status() != psutil.STATUS_ZOMBIE and process.environ().get(MARK) == self._mark:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def is_running(self, words: str) -> bool:
        for process in self.processes():
            try:
                if words in " ".join(process.cmdline()):
                    return True
            except psutil.Error:
                continue
        return False

    def kill(self) -> None:
        give_up_at = time.monotonic() + 20.0
        while left := self.processes():
            assert time.monotonic() < give_up_at, left
            for process in left:
                try:
                    process.send_signal(signal.SIGKILL)
                except psutil.Error:
                    continue
            time.sleep(0.1)
        if self._process is not None:
            self._process.wait(20.0)

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)
