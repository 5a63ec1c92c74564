"""What the driver's library says of GPUs; on a machine without one, the library itself says that there is none."""

import shutil
from types import SimpleNamespace

import pynvml
import pytest

from exgrpo.jobs.machine import hardware
from exgrpo.jobs.machine.hardware import Gpu, list_gpus

pytestmark = pytest.mark.slow


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="This machine has a driver.")
def test_a_machine_without_a_driver_has_no_gpus():
    assert list_gpus() == []


@pytest.fixture
def driver(monkeypatch):
    is_open = []

    def utilization(index):
        if index == 1:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return SimpleNamespace(gpu=37)

    for name, function in {
        "nvmlInit": lambda: is_open.append(True),
        "nvmlShutdown": is_open.clear,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetIndex": lambda index: index,
        "nvmlDeviceGetName": lambda _: "NVIDIA H200",
        "nvmlDeviceGetMemoryInfo": lambda index: SimpleNamespace(used=1024 * (1 - index), total=4096),
        "nvmlDeviceGetUtilizationRates": utilization,
    }.items():
        monkeypatch.setattr(hardware.pynvml, name, function)
    return is_open


def test_gpus_come_in_order_with_what_the_driver_tells(driver):
    assert list_gpus() == [Gpu(0, "NVIDIA H200", 37.0, 1024, 4096), Gpu(1, "NVIDIA H200", None, 0, 4096)]
    assert not driver


@pytest.mark.parametrize(
    ("variable", "found"),
    [
        ("1", [(1, "1")]), ("1,0", [(1, "1"), (0, "0")]), ("", []), ("-1,0", []), ("0,2,1", [(0, "0")]),
        ("GPU-a, MIG-b", [(0, "GPU-a"), (1, "MIG-b")]),
    ],
)  # fmt: skip
def test_gpus_of_a_job_are_those_that_cuda_gives_it(driver, monkeypatch, variable, found):
    monkeypatch.setattr(hardware.pynvml, "nvmlDeviceGetHandleByUUID", ["GPU-a", "MIG-b"].index)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    assert [(gpu.index, gpu.visible_name) for gpu in list_gpus()] == found
    assert not driver


def test_a_gpu_or_a_driver_that_does_not_answer_is_left_out(driver, monkeypatch):
    def memory(index):
        if index == 0:
            fail()
        return SimpleNamespace(used=0, total=4096)

    def fail(*_):
        raise pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN)

    monkeypatch.setattr(hardware.pynvml, "nvmlDeviceGetMemoryInfo", memory)
    assert list_gpus() == [Gpu(1, "NVIDIA H200", None, 0, 4096)]
    assert not driver
    for name in ("nvmlDeviceGetCount", "nvmlShutdown"):
        monkeypatch.setattr(hardware.pynvml, name, fail)
    assert list_gpus() == []


LARGE = 134_515_008


@pytest.mark.parametrize(
    ("flags", "expected"), [("", False), ("avx512f", False), ("avx512f avx512_bf16", True), ("amx_bf16 amx_tile", True)]
)
def test_a_large_model_is_computed_in_bfloat16_where_the_processor_has_units_for_it(
    flags, expected, tmp_path, monkeypatch
):
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    monkeypatch.setattr(hardware, "CPU_INFO", tmp_path / "cpuinfo")
    assert not hardware.uses_bfloat16(LARGE)
    hardware.CPU_INFO.write_text(f"processor\t: 0\nflags\t\t: fpu avx2 {flags}\n\nprocessor\t: 1\n")
    assert hardware.uses_bfloat16(LARGE) == expected
    assert not hardware.uses_bfloat16(100_000)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "default")
    assert hardware.uses_bfloat16(LARGE) == expected
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    assert not hardware.uses_bfloat16(LARGE)
