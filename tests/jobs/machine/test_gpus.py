"""What the driver's library says of GPUs; on a machine without one, the library itself says that there is none."""

import shutil
from types import SimpleNamespace

import pynvml
import pytest

from jobs.machine import gpus
from jobs.machine.gpus import Gpu, list_gpus


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="This machine has a driver.")
def test_a_machine_without_a_driver_has_no_gpus():
    assert list_gpus() == []


@pytest.fixture
def driver(monkeypatch):
    """A driver of two GPUs, the second of which does not tell how busy it is."""
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
        "nvmlDeviceGetName": lambda _: "NVIDIA H200",
        "nvmlDeviceGetMemoryInfo": lambda index: SimpleNamespace(used=1024 * (1 - index), total=4096),
        "nvmlDeviceGetUtilizationRates": utilization,
    }.items():
        monkeypatch.setattr(gpus.pynvml, name, function)
    return is_open


def test_gpus_come_in_order_with_what_the_driver_tells(driver):
    assert list_gpus() == [Gpu(0, "NVIDIA H200", 37.0, 1024, 4096), Gpu(1, "NVIDIA H200", None, 0, 4096)]
    assert not driver


def test_a_gpu_that_does_not_answer_is_left_out(driver, monkeypatch):
    def memory(index):
        if index == 0:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return SimpleNamespace(used=0, total=4096)

    monkeypatch.setattr(gpus.pynvml, "nvmlDeviceGetMemoryInfo", memory)
    assert list_gpus() == [Gpu(1, "NVIDIA H200", None, 0, 4096)]
    assert not driver


def test_a_driver_that_fails_gives_no_gpus_and_no_error(driver, monkeypatch):
    def fail(*_):
        raise pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN)

    monkeypatch.setattr(gpus.pynvml, "nvmlDeviceGetCount", fail)
    monkeypatch.setattr(gpus.pynvml, "nvmlShutdown", fail)
    assert driver == []
    assert list_gpus() == []
