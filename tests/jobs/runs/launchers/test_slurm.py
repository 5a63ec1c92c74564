"""Slurm's script on a real Slurm of two nodes on this machine: preemption, a node's death, arrays, Ray on both."""

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from exgrpo.jobs.actions.preflight.launch_scripts import SECONDS_TO_STOP, ScriptKind, write_script
from exgrpo.jobs.machine.engine_environments import PROJECT_ROOT
from exgrpo.jobs.runs.attempts import read_heartbeat, read_outcome
from exgrpo.jobs.runs.checkpoints import list_steps
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.state import read_state
from exgrpo.jobs.specs.train import parse_spec
from exgrpo_core.recording.run_status import RunStatus
from tests.jobs.execution.supervisor.toy_bench import wait_until
from tests.jobs.runs.launchers.ray_cluster import find_ray
from tests.jobs.training.engines.verl_ray.runs import MARK, run_content
from tests.tools import free_ports, report_missing, require_tool

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.timeout(1800)]

SECONDS = 600.0
NODES = ("n1", "n2")
CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
AuthInfo=cred_expire=5
StateSaveLocation={folder}/-D
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SlurmctldParameters=preempt_send_user_signal
GresTypes=gpu
SlurmdTimeout=10
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[0]} CPUs=32 RealMemory=4000 Gres=gpu:1
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=32 RealMemory=4000 Gres=gpu:1
PartitionName=spare Nodes=n1,n2 Default=YES State=UP PriorityTier=1 GraceTime=120
PartitionName=urgent Nodes=n1,n2 State=UP PriorityTier=2 PreemptMode=off
"""


class Slurm:
    """A controller and two nodes, without cgroups, accounts and munge; what they start carries a mark."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._mark = uuid.uuid4().hex
        self._environment = os.environ | {
            MARK: self._mark, "SPT_NOENV": "1", "SLURM_CONF": str(folder / "slurm.conf"),
            "EXGRPO_FOLDER": str(PROJECT_ROOT),
        }  # fmt: skip
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        port, *ports = free_ports(3)
        values = {"host": socket.gethostname(), "user": getpass.getuser(), "folder": self.folder}
        (self.folder / "slurm.conf").write_text(CONFIGURATION.format(port=port, ports=ports, **values))
        (self.folder / "gres.conf").write_text("Name=gpu File=/dev/null\n")
        self._start("slurmctld", "-D")
        for node in NODES:
            self.start_node(node)

    def start_node(self, node: str) -> None:
        self._start("slurmd", "-D", "-N", node)
        wait_until(lambda: "idle" in self.ask("sinfo", "-h", "-n", node, "-o", "%T"), f"{node}: {self.folder}", SECONDS)

    def _start(self, program: str, *words: str) -> None:
        folder = self.folder / words[-1]  # Slurm's processes are known by it: their titles overwrite the mark
        folder.mkdir(exist_ok=True)
        with (folder / "log.txt").open("ab") as log:
            self._daemons[words[-1]] = subprocess.Popen(
                [str(require_tool(program)), *words],
                cwd=folder, env=self._environment, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def ask(self, *words: str) -> str:
        asked = subprocess.run(words, env=self._environment, capture_output=True, text=True, check=False)
        return asked.stdout if asked.returncode == 0 else ""

    def submit(self, runs_root: Path, *words: str) -> str:
        """Return the job's number; its output is in the folder of the runs root, without those of an array."""
        environment = self._environment | {"EXGRPO_RUNS_ROOT": str(runs_root)}
        command = ["sbatch", "--parsable", *words]
        return subprocess.run(
            command, env=environment, cwd=runs_root.parent, capture_output=True, text=True, check=True
        ).stdout.strip()

    def states(self, job: str) -> list[str]:
        return self.ask("squeue", "-h", "-r", "-t", "all", "-o", "%T", "-j", job).split()

    def kill_node(self, node: str, *, leaves_daemon: bool = False) -> None:
        """End a node's daemon and all that it runs, as a power cut would; without it Slurm notices nothing."""
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                is_daemon = process.cwd() == str(self.folder / node)
                if (is_daemon and not leaves_daemon) or process.environ().get("SLURMD_NODENAME") == node:
                    process.send_signal(signal.SIGKILL)
        if not leaves_daemon:
            self._daemons.pop(node).wait(20)

    def end(self) -> None:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if Path(process.cwd()).is_relative_to(self.folder) or process.environ().get(MARK) == self._mark:
                    process.send_signal(signal.SIGKILL)
        for daemon in self._daemons.values():
            daemon.wait(20)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    if shutil.which("slurmctld") is None:
        report_missing("Slurm is not installed; `make test-slurm` installs Debian's slurm-wlm.")
    if not os.access(PROJECT_ROOT / ".venv/bin/exgrpo", os.X_OK):
        report_missing("There is no .venv; make it with `make install`.")
    slurm = Slurm(tmp_path_factory.mktemp("slurm"))
    try:
        slurm.start()
        yield slurm
    finally:
        slurm.end()


def keep(folder: Path, **changes: object) -> str:
    """Write the script of a tiny run, of the embedded engine unless told, and return its path."""
    content = run_content(**{"engine": "embedded", "model": {"device": "auto"}, "name": "tiny", "verl": {}, **changes})
    script = write_script(parse_spec(content, "test"), folder / "elsewhere", ScriptKind.SLURM)
    (folder / script.file_name).write_text(script.text)
    return str(folder / script.file_name)


def only_run(runs_root: Path, job: str) -> RunDirectory:
    (info,) = (runs_root / f"slurm-{job}").glob("*/run.json")
    return RunDirectory(info.parent)


def wait_for_step(runs_root: Path, job: str, step: int, attempt: int = 1) -> RunDirectory:
    def is_there() -> bool:
        paths = list((runs_root / f"slurm-{job}").glob(f"*/attempts/{attempt:04d}"))
        heartbeat = read_heartbeat(paths[0]) if paths else None
        return heartbeat is not None and heartbeat.step >= step

    wait_until(is_there, f"step {step} of attempt {attempt} in {runs_root}", SECONDS, 0.2)
    return only_run(runs_root, job)


def wait_for_end(slurm: Slurm, job: str) -> list[str]:
    ended = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED"}

    def are_over() -> bool:
        states = slurm.states(job)
        return bool(states) and ended.issuperset(states)

    wait_until(are_over, f"the end of job {job}", SECONDS, 0.5)
    return slurm.states(job)


def test_a_time_limit_within_the_time_for_a_checkpoint_is_refused_before_the_run(slurm: Slurm, tmp_path: Path):
    job = slurm.submit(tmp_path / "runs", f"--time={SECONDS_TO_STOP // 60}", keep(tmp_path))
    assert wait_for_end(slurm, job) == ["FAILED"]
    assert (tmp_path / f"tiny-{job}.log").read_text().startswith("--time: ")
    assert not (tmp_path / "runs").exists()


def test_a_preempted_run_stops_with_a_checkpoint_and_its_job_comes_back_for_it(slurm: Slurm, tmp_path: Path):
    runs_root = tmp_path / "runs"
    job = slurm.submit(runs_root, keep(tmp_path, num_steps=5000, checkpoint_interval=5000))
    run = wait_for_step(runs_root, job, 3)
    slurm.submit(runs_root, "--partition=urgent", "--nodes=2", "--exclusive", "--wrap=true")
    wait_until(lambda: read_outcome(run.attempt_path(1)) is not None, "the run's stop", SECONDS, 0.2)
    assert read_outcome(run.attempt_path(1)).status is RunStatus.STOPPED
    (stopped_at,) = list_steps(run.checkpoints_path)
    assert stopped_at >= 3
    wait_for_step(runs_root, job, stopped_at + 1, attempt=2)
    assert f"resuming from step {stopped_at}\n" in run.log_path.read_text()
    log = (tmp_path / f"tiny-{job}.log").read_text()
    assert log.count(f"{run.run_id}: running") == 2
    slurm.ask("scancel", job)
    assert wait_for_end(slurm, job) == ["CANCELLED"]


def test_a_node_s_death_costs_the_steps_after_the_newest_checkpoint(slurm: Slurm, tmp_path: Path):
    runs_root = tmp_path / "runs"
    job = slurm.submit(runs_root, keep(tmp_path, num_steps=5000, checkpoint_interval=4))
    run = wait_for_step(runs_root, job, 6)
    node = slurm.ask("squeue", "-h", "-o", "%N", "-j", job).strip()
    slurm.kill_node(node)
    wait_until(lambda: read_state(run).status is RunStatus.LOST, "the end of its processes")
    newest = list_steps(run.checkpoints_path)[-1]
    wait_for_step(runs_root, job, newest + 1, attempt=2)
    assert slurm.ask("squeue", "-h", "-o", "%N", "-j", job).strip() != node
    printed = run.log_path.read_text()
    assert printed.index("Attempt 1 of") < printed.index(f"resuming from step {newest}\n")
    slurm.ask("scancel", job)
    wait_for_end(slurm, job)
    slurm.start_node(node)


def test_each_task_of_an_array_has_a_run_of_its_own_seed_which_another_job_continues(slurm: Slurm, tmp_path: Path):
    runs_root, script = tmp_path / "runs", keep(tmp_path, num_steps=2)
    job = slurm.submit(runs_root, "--array=1-2", script)
    assert wait_for_end(slurm, job) == ["COMPLETED"] * 2
    runs = [only_run(runs_root, f"{job}_{task}") for task in (1, 2)]
    assert [run.spec().seed for run in runs] == [1, 2]
    assert [read_state(run).status for run in runs] == [RunStatus.FINISHED] * 2
    again = slurm.submit(runs_root, "--array=2", script, job)
    assert wait_for_end(slurm, again) == ["COMPLETED"]
    assert runs[1].attempts() == [1]
    assert wait_for_end(slurm, slurm.submit(runs_root, script, "9999")) == ["FAILED"]


def test_ray_trains_over_both_nodes_and_after_the_death_of_one_another_job_continues(slurm: Slurm, tmp_path: Path):
    if find_ray() is None:
        report_missing("There is no verl environment; make it with `make verl-env`.")
    verl = run_content()["verl"] | {"num_nodes": 2, "gpus_per_node": 1}
    runs_root = tmp_path / "runs"
    script = keep(tmp_path, engine="verl", model={"device": "cpu"}, num_steps=8, checkpoint_interval=2, verl=verl)
    job = slurm.submit(runs_root, script)
    run = wait_for_step(runs_root, job, 3)  # the checkpoint of step 2 is whole then
    assert (tmp_path / f"tiny-{job}.log").read_text().count("Ray runtime started") == 2
    slurm.kill_node("n2", leaves_daemon=True)
    assert wait_for_end(slurm, job) == ["FAILED"]
    end, (newest, *_) = read_outcome(run.attempt_path(1)), sorted(list_steps(run.checkpoints_path), reverse=True)
    assert end.status is RunStatus.FAILED
    assert "Resume the run" in end.reason
    again = slurm.submit(runs_root, script, job)
    assert wait_for_end(slurm, again) == ["COMPLETED"], (tmp_path / f"tiny-{again}.log").read_text()
    assert f"resuming from step {newest}\n" in run.log_path.read_text()
    assert read_state(run).status is RunStatus.FINISHED
