import sys
import time

import pytest

from exgrpo.jobs.machine import memory_sharing
from exgrpo.jobs.machine.hardware import list_gpus
from exgrpo.jobs.machine.memory_sharing import probe_sharing

pytestmark = pytest.mark.slow


def test_a_receiver_writes_into_the_memory_of_a_sender():
    found = probe_sharing(sys.executable, "cpu", 120.0)
    assert (found.works, found.detail) == (True, "works")


def test_the_side_that_fails_is_named_with_its_error():
    found = probe_sharing(sys.executable, "meta", 120.0)
    assert found.works is False
    assert "meta" in found.detail
    assert found.detail.startswith(("sender: ", "receiver: "))


@pytest.mark.parametrize(
    ("output", "works", "detail"),
    [
        ("sender: CUDA error: out of memory", None, "sender: CUDA error: out of memory"),
        ("untried: PyTorch finds no GPU", None, "PyTorch finds no GPU"),
        ("", None, "the probe printed nothing"),
    ],
)
def test_what_a_probe_says_last_decides(tmp_path, output, works, detail):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho '{output}'\n")
    python.chmod(0o700)
    found = probe_sharing(str(python))
    assert (found.works, found.detail) == (works, detail)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a process is left
@pytest.mark.parametrize("child", ["sleep 60", "setsid sleep 20"])
def test_a_probe_that_hangs_is_not_waited_for_and_its_stage_is_told(tmp_path, child):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho receiver: opens the memory\n{child} &\nsleep 60\n")
    python.chmod(0o700)
    began_at = time.monotonic()
    found = probe_sharing(str(python), seconds=1.0)
    assert (found.works, found.detail) == (False, "receiver: opens the memory, without an end after 1 s")
    assert time.monotonic() - began_at < 15.0


def test_without_pytorch_nothing_is_found_about_the_gpu(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(SystemExit):
        memory_sharing._guarded(memory_sharing._send, "sender", None, "cpu")
    said = capsys.readouterr().out
    assert said.startswith("untried: ")
    assert "torch" in said


def test_an_interpreter_that_does_not_run_is_no_finding_about_the_gpu(tmp_path):
    assert probe_sharing(str(tmp_path / "python")).works is None


@pytest.mark.gpu
def test_processes_of_this_machine_share_a_gpus_memory():
    if not list_gpus():
        pytest.skip("no NVIDIA GPU")
    assert probe_sharing(sys.executable).works
