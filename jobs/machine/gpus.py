"""The GPUs of this machine and their use, from NVIDIA's driver, without PyTorch."""

import contextlib
from dataclasses import dataclass

import pynvml


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU; `busy_percent` is None where the driver does not report it (a MIG slice)."""

    index: int
    name: str
    busy_percent: float | None
    used_bytes: int
    total_bytes: int


def list_gpus() -> list[Gpu]:
    """Return the GPUs in order, none where there is no driver or it does not answer."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        gpus = [_read_gpu(index) for index in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError:
        gpus = []
    with contextlib.suppress(pynvml.NVMLError):
        pynvml.nvmlShutdown()
    return [gpu for gpu in gpus if gpu is not None]


def _read_gpu(index: int) -> Gpu | None:
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    except pynvml.NVMLError:
        return None
    try:
        busy_percent = float(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)
    except pynvml.NVMLError:
        busy_percent = None
    return Gpu(index, pynvml.nvmlDeviceGetName(handle), busy_percent, memory.used, memory.total)
