import errno
import io
import json
import os
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from exgrpo.jobs.cli import doctor
from exgrpo.jobs.cli.doctor import CheckResult, check_temporary_folder, check_verl
from exgrpo.jobs.cli.workbench import WorkbenchInstance
from exgrpo.jobs.machine.engine_environments import VERL_PYTHON_VARIABLE, Pins
from exgrpo.jobs.machine.hardware import Gpu
from exgrpo.jobs.machine.memory_sharing import MemorySharing
from exgrpo_core.verl_plugin.attention_kernel import KERNEL
from tests.jobs.cli.invoked import exgrpo

pytestmark = pytest.mark.slow

GOOD = {"torch": "2.13.0+cpu", "verl": "0.9.1", "ray": "2.60.0", "vllm": None, "transformers": "5.10.4"}
CPU_PINS = {"torch": "2.13.0", "verl": "0.9.1", "ray": "2.60.0", "transformers": "5.10.4"}
ON_GPUS = {"torch": "2.11.0", "transformers": "5.9.0", "vllm": "0.24.0", "kernels": "0.14.1"}


@pytest.fixture
def environment(tmp_path, monkeypatch):
    pins = [Pins("constraints-verl-cpu.txt", CPU_PINS), Pins("constraints-verl-gpu.txt", CPU_PINS | ON_GPUS)]
    monkeypatch.setattr(doctor, "verl_pins", lambda: pins)

    def make(versions: dict[str, str | None], kernel: str | None = "db6b5174") -> None:
        python = tmp_path / "python"
        needs = {"missing_packages": [], "kernel": kernel, "cuda": None}
        python.write_text(f"""#!/bin/sh
        case "$*" in *gpu_needs*) echo '{json.dumps(needs)}';; *) echo '{json.dumps(versions)}';; esac
        """)
        python.chmod(0o755)
        monkeypatch.setenv(VERL_PYTHON_VARIABLE, str(python))

    return make


@pytest.mark.parametrize("versions", [GOOD, GOOD | ON_GPUS | {"torch": "2.11.0+cu130"}])
def test_an_environment_of_either_constraints_file_is_good(environment, versions):
    environment(versions)
    finding = check_verl()
    assert (finding.result, finding.advice) == (CheckResult.OK, "")
    assert "verl 0.9.1" in finding.detail
    assert (f"{KERNEL} at db6b5174" in finding.detail) == ("kernels" in versions)


@pytest.mark.parametrize(
    ("versions", "kernel", "advice"),
    [
        (
            GOOD | {"ray": "2.50.0", "transformers": None},
            "db6b5174",
            "ray is 2.50.0, not 2.60.0; transformers is missing",
        ),
        (GOOD | ON_GPUS | {"kernels": None}, "db6b5174", "kernels is missing"),
        (GOOD | {"verl": "0.9.7"}, "db6b5174", "make verl-compat VERL_VERSIONS=0.9.7"),
        (GOOD | ON_GPUS, None, "verl.attention to sdpa"),
    ],
)
def test_what_an_environment_for_verl_lacks_is_named(environment, versions, kernel, advice):
    environment(versions, kernel)
    found = check_verl()
    assert found.result is CheckResult.WARNING
    assert advice in found.advice


def test_no_environment_limits_what_can_be_done_and_without_constraints_verl_has_to_be_there(
    environment, tmp_path, monkeypatch
):
    environment(GOOD | {"verl": None})
    monkeypatch.setattr(doctor, "verl_pins", list)
    found = check_verl()
    assert (found.result, "verl is missing" in found.advice) == (CheckResult.WARNING, True)
    monkeypatch.setenv(VERL_PYTHON_VARIABLE, str(tmp_path / "gone"))
    found = check_verl()
    assert (found.result, found.detail, "make verl-env" in found.advice) == (
        CheckResult.WARNING,
        "no environment",
        True,
    )


def checks_in(runs_root, url=None, port=0):
    return {check.name: check for check in doctor.examine(runs_root, url, port)}


def test_doctor_changes_nothing_and_says_that_the_database_will_be_built_again(tmp_path):
    root, path = tmp_path / "runs", tmp_path / "mine.db"
    url = f"sqlite:///{path}"
    checks = checks_in(root)
    assert (checks["Python"].result, checks["database"].result) == (CheckResult.OK, CheckResult.OK)
    assert "not created yet" in checks["database"].detail
    checks_in(root, url)
    assert list(tmp_path.iterdir()) == []
    path.touch()
    for _ in range(2):
        assert checks_in(root, url)["database"].detail == "SQLite, empty, built from the run directories when next used"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE ingest_positions (run_key INTEGER)")
        connection.commit()
    other = checks_in(root, url)["database"]
    assert (other.result, "ingest_positions.source is missing, built from" in other.detail) == (CheckResult.OK, True)
    assert checks_in(root, "nonsense://")["database"].result is CheckResult.FAILURE
    exgrpo(root, "doctor", "--database-url", "nonsense://", "--port", "0", code=1)


def test_a_port_is_of_this_runs_roots_workbench_or_taken_by_another_program(tmp_path):
    instance = WorkbenchInstance(tmp_path)
    instance.record_link("http://127.0.0.1:8642/?token=secret")
    assert doctor.check_port(8642, tmp_path).result is CheckResult.OK
    instance.release()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        found = doctor.check_port(taken.getsockname()[1], tmp_path)
    assert (found.result, "exgrpo up --port" in found.advice) == (CheckResult.WARNING, True)


def test_a_temporary_folder_that_cannot_be_written_is_a_failure(tmp_path, monkeypatch):
    assert check_temporary_folder().result is CheckResult.OK
    monkeypatch.setattr(doctor.tempfile, "tempdir", str(tmp_path / "gone"))
    finding = check_temporary_folder()
    assert (finding.result, finding.detail) == (CheckResult.FAILURE, "No such file or directory")
    assert "TMPDIR" in finding.advice


REPOSITORY = Path(__file__).resolve().parents[3]


def test_a_fresh_machine_is_fit_and_stays_as_it_was(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(REPOSITORY), "LANG": "C.UTF-8"}
    command = [sys.executable, "-P", "-B", "-m", "exgrpo.jobs.cli", "doctor", "--json", "--port", "0"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    checks = {check["name"]: check for check in json.loads(done.stdout)}
    assert {check["result"] for check in checks.values()} <= {"ok", "warning"}
    assert {"GPU", "verl engine", "port", "disk", "runs root", "temporary"} <= checks.keys()
    assert [path.name for path in tmp_path.rglob("*")] == ["home"]


def test_a_machine_without_space_fails_and_one_without_pytorch_is_a_viewer(tmp_path, monkeypatch):
    class FullFile(io.BytesIO):
        def flush(self):
            raise OSError(errno.ENOSPC, "No space left on device")

        def fileno(self):
            return os.open(tmp_path, os.O_RDONLY)

    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda _name: None)
    assert doctor.check_torch().result is CheckResult.WARNING
    assert "exgrpo-workbench[train]" in doctor.check_torch().advice
    monkeypatch.setattr(doctor.tempfile, "TemporaryFile", lambda **_: FullFile())
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 20))
    assert doctor.check_disk(tmp_path).result is CheckResult.FAILURE
    found = doctor.check_runs_root(tmp_path / "runs")
    assert (found.result, str(tmp_path) in found.detail and "free some space" in found.advice.lower()) == (
        CheckResult.FAILURE,
        True,
    )


def test_the_workbench_does_not_start_on_a_taken_port_and_says_why(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, "-P", "-m", "exgrpo.jobs.cli", "up", "--no-browser", "--runs-root", str(tmp_path)]
        environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
        finished = subprocess.run(
            [*command, "--port", str(port)], env=environment, capture_output=True, text=True, timeout=120, check=False
        )
    assert finished.returncode == 2
    assert finished.stderr.splitlines()[-1].startswith(f"port {port} on 127.0.0.1: ")


@pytest.mark.parametrize(
    ("works", "result", "word"),
    [
        (True, CheckResult.OK, "can share"),
        (False, CheckResult.WARNING, "receiver: opens the memory"),
        (None, CheckResult.OK, "was not tried"),
    ],
)
def test_a_gpu_machine_is_asked_whether_processes_share_its_memory(tmp_path, monkeypatch, works, result, word):
    monkeypatch.setattr(doctor, "list_gpus", lambda: [Gpu(0, "H200", 0.0, 1, 2)])
    monkeypatch.setattr(doctor, "probe_sharing", lambda _: MemorySharing(works, "receiver: opens the memory"))
    (found,) = [check for check in doctor.examine(tmp_path, None, 0) if check.name == "GPU memory"]
    assert (found.result, word in found.detail) == (result, True)
    assert ("--ipc=host" in found.advice) == (works is False)
