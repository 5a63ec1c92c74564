"""This machine's GPUs and their use, from NVIDIA's driver, its processor, and sizes of memory; without PyTorch."""

import contextlib
import os
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
    uuid: str | None = None
    """As `VISIBLE_VARIABLE` names it, where it names no index."""

    @property
    def visible_name(self) -> str:
        """The name by which `VISIBLE_VARIABLE` gives it to a process."""
        return self.uuid or str(self.index)


VISIBLE_VARIABLE = "CUDA_VISIBLE_DEVICES"
"""Environment variable with the GPUs that CUDA gives to a process, by index or UUID; without it all."""
GPUS_VARIABLE = "EXGRPO_GPUS"
"""Environment variable of a worker with the GPUs that it got for itself, empty without any."""


def list_gpus() -> list[Gpu]:
    """Return the GPUs that this process may use, none where there is no driver or it does not answer."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        gpus = [_read_gpu(name) for name in _visible_names(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError:
        gpus = []
    with contextlib.suppress(pynvml.NVMLError):
        pynvml.nvmlShutdown()
    return [gpu for gpu in gpus if gpu is not None]


def _visible_names(num_gpus: int) -> list[str]:
    """Return indices and UUIDs; as CUDA reads the variable, what is no GPU ends the list."""
    if VISIBLE_VARIABLE not in os.environ:
        return [str(index) for index in range(num_gpus)]
    names = [name.strip() for name in os.environ[VISIBLE_VARIABLE].split(",")]
    are_gpus = [name.startswith(("GPU-", "MIG-")) or (name.isdecimal() and int(name) < num_gpus) for name in names]
    return names[: (*are_gpus, False).index(False)]


def _read_gpu(name: str) -> Gpu | None:
    try:
        is_index = name.isdecimal()
        handle = pynvml.nvmlDeviceGetHandleByIndex(int(name)) if is_index else pynvml.nvmlDeviceGetHandleByUUID(name)
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        index = pynvml.nvmlDeviceGetIndex(handle)
    except pynvml.NVMLError:
        return None
    try:
        busy_percent = float(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)
    except pynvml.NVMLError:
        busy_percent = None
    uuid = None if is_index else name
    return Gpu(index, pynvml.nvmlDeviceGetName(handle), busy_percent, memory.used, memory.total, uuid)


def driver_cuda() -> str | None:
    """Return the newest version of CUDA that the driver runs, such as 13.0; None where there is no driver."""
    try:
        pynvml.nvmlInit()
        number = int(pynvml.nvmlSystemGetCudaDriverVersion())
        pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return None
    return f"{number // 1000}.{number % 1000 // 10}"


CPU_INFO = Path("/proc/cpuinfo")
_BFLOAT16_FLAGS = frozenset({"avx512_bf16", "amx_bf16"})
MIN_BFLOAT16_PARAMETERS = 2**25
"""Below it matrix products take too little of the time for bfloat16 to pay, and float32 is exact."""


def uses_bfloat16(num_parameters: int) -> bool:
    """Tell whether this CPU computes a model of so many parameters in bfloat16: it has units for it (AVX512, AMX).

    If oneDNN is told to use fewer of the processor's units, it can refuse bfloat16.
    """
    is_limited = os.environ.get("ONEDNN_MAX_CPU_ISA", "ALL").upper() not in ("ALL", "DEFAULT")
    return num_parameters >= MIN_BFLOAT16_PARAMETERS and not is_limited and bool(_BFLOAT16_FLAGS & _flags())


def _flags() -> set[str]:
    try:
        lines = CPU_INFO.read_text(encoding="utf-8").splitlines()
    except OSError:
        return set()
    return set(next((line for line in lines if line.startswith("flags")), "").split())
