"""This machine's GPUs and their use, from NVIDIA's driver, its processor, and sizes of memory; without PyTorch."""

import contextlib
from dataclasses import dataclass
from pathlib import Path

import pynvml

GB, GIB = 1e9, 1024**3
MIN_FREE_GIB = 5.0
"""With less, a run of a real model ends early."""


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


CPU_INFO = Path("/proc/cpuinfo")
_BFLOAT16_FLAGS = frozenset({"avx512_bf16", "amx_bf16"})
MIN_BFLOAT16_PARAMETERS = 2**25
"""Below it matrix products take too little of the time for bfloat16 to pay, and float32 is exact."""


def uses_bfloat16(num_parameters: int) -> bool:
    """Tell whether this CPU computes a model of so many parameters in bfloat16: it has units for it (AVX512, AMX)."""
    return num_parameters >= MIN_BFLOAT16_PARAMETERS and bool(_BFLOAT16_FLAGS & _flags())


def _flags() -> set[str]:
    try:
        lines = CPU_INFO.read_text(encoding="utf-8").splitlines()
    except OSError:
        return set()
    return set(next((line for line in lines if line.startswith("flags")), "").split())
