import os
import signal
import subprocess
import sys

import psutil
import pytest

from exgrpo.jobs.runs.launchers.end_with_starter import STARTER_VARIABLE
from tests.jobs.execution.supervisor.toy_bench import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of its starter's death")

RANK = "import signal, time; from exgrpo.jobs.runs.launchers.end_with_starter import end_with_starter"
RANK += "; end_with_starter(signal.SIGKILL); print('bound', flush=True); time.sleep(60)"
AGENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {RANK!r}], start_new_session=True)"
STARTER = f"""
import os, subprocess, sys
environment = os.environ | {{"{STARTER_VARIABLE}": str(os.getpid())}}
agent = [sys.executable, "-c", {AGENT!r}]
subprocess.run([sys.executable, "-P", "-m", "exgrpo.jobs.runs.launchers.end_with_starter", *agent], env=environment)
"""


@pytest.fixture
def family(repository):
    """A starter, its bound agent and the rank that this one started in a session of its own."""
    environment = os.environ | {"PYTHONPATH": str(repository)}
    starter = subprocess.Popen([sys.executable, "-c", STARTER], stdout=subprocess.PIPE, env=environment)
    assert starter.stdout.readline() == b"bound\n"
    [agent, rank] = psutil.Process(starter.pid).children(recursive=True)
    yield psutil.Process(starter.pid), agent, rank
    for item in (psutil.Process(starter.pid), agent, rank):
        if item.is_running():
            item.kill()
    starter.wait()
    starter.stdout.close()


@pytest.mark.parametrize("victim", [0, 1], ids=["starter", "agent"])
def test_rank_in_a_session_of_its_own_ends_with_those_who_started_it(family, victim):
    assert os.getsid(family[2].pid) == family[2].pid
    family[victim].send_signal(signal.SIGKILL)
    wait_until(lambda: is_gone(family[2]), "the rank ends")


def is_gone(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_process_whose_starter_is_gone_already_leaves_at_once(repository):
    environment = os.environ | {"PYTHONPATH": str(repository), STARTER_VARIABLE: "1"}
    command = [
        sys.executable,
        "-P",
        "-m",
        "exgrpo.jobs.runs.launchers.end_with_starter",
        sys.executable,
        "-c",
        "print('ran')",
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout) == (1, "")
