import os
import subprocess
import sys
from contextlib import ExitStack

import pytest

from exgrpo.jobs.runs import processes
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.processes import ATTEMPT_VARIABLE, find_processes, read_stacks, waits_for
from tests.faults.small_training import small_spec
from tests.jobs.cli.invoked import exgrpo, printed_json

RECEIVER = """
import socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()

def receive_weights():
    print("waits", flush=True)
    listener.accept()

receive_weights()
"""


@pytest.fixture
def stuck(tmp_path):
    """Yield a run, and a process of its attempt that waits for a peer that never comes."""
    run = RunDirectory.create(tmp_path, small_spec(4))
    attempt = run.attempt_path(run.claim_attempt())
    with ExitStack() as at_end:
        variables = os.environ | {ATTEMPT_VARIABLE: str(attempt.resolve())}
        command = [sys.executable, "-c", RECEIVER, str(tmp_path / "weights.sock")]
        process = at_end.enter_context(subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True))
        at_end.callback(process.kill)
        assert process.stdout.readline() == "waits\n"
        yield run, process, tmp_path / "weights.sock"


def test_doctor_tells_what_each_process_of_a_stuck_run_waits_for_and_when_none_runs_here(stuck, monkeypatch):
    run, process, socket = stuck
    assert [found.pid for found in find_processes(run.attempt_path(1))] == [process.pid]
    assert find_processes(run.attempt_path(2)) == []
    words = ["doctor", "--run", run.run_id]
    lines = [line.strip() for line in exgrpo(run.path.parent, *words).splitlines()]
    assert f"waits for: {dict(processes.WAITS)['receive_weights']}" in lines
    assert any(line.startswith(f"socket: {socket}") for line in lines)
    assert any("receive_weights (<string>:" in line for line in lines)
    (found,) = printed_json(run.path.parent, *words)
    assert (found["pid"], found["waits_for"]) == (process.pid, "weights from a training worker")
    assert process.poll() is None
    with monkeypatch.context() as without_py_spy:
        without_py_spy.setattr(processes.shutil, "which", lambda *_, **__: None)
        (read,) = read_stacks(run.attempt_path(1))
    assert (read.pid, read.waits_for, bool(read.sockets)) == (process.pid, "", True)
    assert "exgrpo-workbench[train]" in read.stacks
    process.kill()
    process.wait()
    assert "no process of it runs on this machine" in exgrpo(run.path.parent, *words)


@pytest.mark.parametrize(
    ("frames", "what"),
    [
        (
            ["_new_shared_cuda", "rebuild_ipc", "_init_buffer", "receive_weights"],
            "GPU memory that another process shares",
        ),
        (["recv", "_init_buffer", "BucketedWeightSender.async_send_weights"], "vLLM to take weights"),
        (["full_tensor", "async_send_weights", "update_weights"], "the other ranks"),
        (["forward", "train"], "nothing that is known; it is in forward (file.py:1)"),
        ([], ""),
    ],
)
def test_the_functions_on_a_stack_tell_what_a_process_waits_for(frames, what):
    stacks = "\n".join(['Thread 1 (idle): "MainThread"', *(f"    {name} (file.py:1)" for name in frames)])
    assert waits_for(stacks) == what
