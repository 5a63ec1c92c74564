import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.alerts.destinations import FILE_VARIABLE, URLS_VARIABLE
from jobs.cli import doctor
from jobs.cli.doctor import CheckResult, check_alerts, check_temporary_folder, check_verl
from jobs.machine.engine_environments import VERL_PYTHON_VARIABLE, Pins

GOOD = {"torch": "2.13.0+cpu", "verl": "0.9.1", "ray": "2.60.0", "vllm": None, "transformers": "5.10.4"}
CPU_PINS = {"torch": "2.13.0", "verl": "0.9.1", "ray": "2.60.0", "transformers": "5.10.4"}
ON_GPUS = {"torch": "2.11.0", "transformers": "5.9.0", "vllm": "0.24.0", "kernels": "0.12.3"}


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """Return a function that makes an environment for verl with these versions, beside two constraints files."""
    pins = [Pins("constraints-verl-cpu.txt", CPU_PINS), Pins("constraints-verl-gpu.txt", CPU_PINS | ON_GPUS)]
    monkeypatch.setattr(doctor, "verl_pins", lambda: pins)

    def make(versions: dict[str, str | None], has_kernel: bool = True) -> None:
        python = tmp_path / "python"
        needs = {"missing_packages": [], "has_kernel": has_kernel}
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
    assert finding.result is CheckResult.OK
    assert "verl 0.9.1" in finding.detail
    assert finding.advice == ""


def test_other_versions_are_named_with_what_to_do(environment):
    environment(GOOD | {"ray": "2.50.0", "transformers": None})
    finding = check_verl()
    assert finding.result is CheckResult.WARNING
    assert "ray is 2.50.0, not 2.60.0; transformers is missing" in finding.advice
    assert "make verl-env" in finding.advice


def test_environment_for_gpus_without_a_package_that_gpus_need_is_not_good(environment):
    environment(GOOD | ON_GPUS | {"kernels": None})
    assert "kernels is missing" in check_verl().advice


def test_environment_for_gpus_says_that_the_attention_kernel_was_not_fetched(environment):
    environment(GOOD | ON_GPUS, has_kernel=False)
    found = check_verl()
    assert found.result is CheckResult.WARNING
    assert "gpu_needs fetch`, or set verl.attention to sdpa" in found.advice


def test_no_environment_limits_what_can_be_done_and_stops_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv(VERL_PYTHON_VARIABLE, str(tmp_path / "gone"))
    finding = check_verl()
    assert (finding.result, finding.detail) == (CheckResult.WARNING, "no environment")
    assert "make verl-env" in finding.advice


def test_without_constraints_verl_itself_has_to_be_there(environment, monkeypatch):
    environment(GOOD | {"verl": None})
    monkeypatch.setattr(doctor, "verl_pins", list)
    finding = check_verl()
    assert finding.result is CheckResult.WARNING
    assert "verl is missing" in finding.advice


def test_a_temporary_folder_that_cannot_be_written_is_a_failure(tmp_path, monkeypatch):
    assert check_temporary_folder().result is CheckResult.OK
    monkeypatch.setattr(doctor.tempfile, "tempdir", str(tmp_path / "gone"))
    finding = check_temporary_folder()
    assert (finding.result, finding.detail) == (CheckResult.FAILURE, "No such file or directory")
    assert "TMPDIR" in finding.advice


def test_destinations_of_alerts_are_named_without_their_secrets(tmp_path, monkeypatch):
    monkeypatch.delenv(FILE_VARIABLE, raising=False)
    monkeypatch.setenv(URLS_VARIABLE, "json://localhost/secret-7f")
    assert (check_alerts().result, check_alerts().detail) == (CheckResult.OK, "1 (json)")
    path = tmp_path / "alerts"
    path.write_text("json://localhost/secret-7f")
    path.chmod(0o644)
    monkeypatch.setenv(FILE_VARIABLE, str(path))
    finding = check_alerts()
    assert finding.result is CheckResult.WARNING
    assert "chmod 600" in finding.advice
    assert "secret-7f" not in finding.detail + finding.advice


REPOSITORY = Path(__file__).resolve().parents[3]
_WITHOUT_TORCH = (
    "import importlib.util, sys; find = importlib.util.find_spec; sys.modules['torch'] = None; "
    "importlib.util.find_spec = lambda name, package=None: None if name == 'torch' else find(name, package); "
    "from jobs.cli.main import main; main()"
)
SMALL_DISK_BYTES = 256 * 1024


def run_doctor(folder: Path, *options: str, before: tuple[str, ...] = (), program: str = "-mjobs.cli"):
    """Run the command with an empty home and nothing of this user's environment, in `folder`."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(REPOSITORY), "LANG": "C.UTF-8"}
    start = [program] if program.startswith("-m") else ["-c", program]
    command = [*before, sys.executable, "-P", "-B", *start, "doctor", *options]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def checks_of(finished) -> dict[str, dict[str, str]]:
    assert finished.stderr == ""
    return {check["name"]: check for check in json.loads(finished.stdout)}


@pytest.fixture
def small_disk(tmp_path) -> tuple[Path, tuple[str, ...]]:
    """A folder, and the command before which a file system of 256 KiB is mounted on it and filled."""
    folder = tmp_path / "disk"
    folder.mkdir()
    script = (
        f'mount -t tmpfs -o size={SMALL_DISK_BYTES} none "$0" && '
        f'{{ head -c {SMALL_DISK_BYTES} /dev/zero >"$0/filling" 2>/dev/null || true; }} && exec "$@"'
    )
    unshare = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    before = (*unshare, "sh", "-c", script, str(folder))
    if shutil.which("unshare") is None or subprocess.run([*before, "true"], check=False).returncode != 0:
        pytest.skip("No file system can be mounted here, so that none can be full.")
    return folder, before


@pytest.mark.slow
def test_a_fresh_machine_is_fit_and_stays_as_it_was(tmp_path):
    finished = run_doctor(tmp_path, "--json", "--port", "0")
    checks = checks_of(finished)
    assert finished.returncode == 0
    assert {check["result"] for check in checks.values()} <= {"ok", "warning"}
    assert checks["runs root"]["detail"] == "runs, not created yet; the first run creates it"
    assert checks["database"]["detail"] == "SQLite, not created yet; the first run creates it"
    assert "make verl-env" in checks["verl engine"]["advice"] or checks["verl engine"]["result"] == "ok"
    assert [path.name for path in tmp_path.rglob("*")] == ["home"]


@pytest.mark.slow
def test_a_machine_without_pytorch_is_told_how_to_get_it(tmp_path):
    finished = run_doctor(tmp_path, program=_WITHOUT_TORCH)
    assert finished.returncode == 1
    assert "FAIL PyTorch     not installed - Run `make install`." in finished.stdout.splitlines()
    assert "Traceback" not in finished.stderr


@pytest.mark.slow
def test_a_machine_without_space_fails_and_is_told_where_to_make_room(tmp_path, small_disk):
    folder, before = small_disk
    finished = run_doctor(tmp_path, "--json", "--runs-root", str(folder / "runs"), before=before)
    checks = checks_of(finished)
    assert finished.returncode == 1
    assert (checks["disk"]["result"], checks["disk"]["detail"]) == ("failure", f"0.00 GiB free at {folder}")
    assert "free some space" in checks["disk"]["advice"]
    assert checks["runs root"]["result"] == "failure"
    assert "No space left on device" in checks["runs root"]["detail"]
    assert checks["runs root"]["advice"].startswith(f"Free some space on the file system of {folder}")


@pytest.mark.slow
def test_a_taken_port_is_named_with_what_to_do(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        finished = run_doctor(tmp_path, "--port", str(port))
    expected = f"note port        {port} is in use - Another program has it; choose another: `exgrpo up --port N`."
    assert expected in finished.stdout.splitlines()
    assert finished.returncode == 0


@pytest.mark.slow
def test_the_workbench_does_not_start_on_a_taken_port_and_says_why(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, "-P", "-m", "jobs.cli", "up", "--no-browser", "--runs-root", str(tmp_path)]
        environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
        finished = subprocess.run(
            [*command, "--port", str(port)], env=environment, capture_output=True, text=True, timeout=120, check=False
        )
    assert finished.returncode == 2
    assert finished.stderr.splitlines()[-1] == (
        f"port {port} on 127.0.0.1: cannot be opened (Address already in use); give another --port."
    )
