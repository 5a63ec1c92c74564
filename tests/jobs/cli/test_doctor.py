import json

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
