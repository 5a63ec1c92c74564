"""This machine's GPUs and their use, from NVIDIA's driver, its processor, and sizes of memory; without PyTorch."""

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

import pynvml

from exgrpo_core.errors import FieldError

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


@dataclass(frozen=True, slots=True)
class GpuType:
    """A type of GPU; memory as its driver reports it, speed as its peak in bfloat16 without sparsity."""

    name: str
    gib: float
    teraflops: float

    @property
    def slowness(self) -> float:
        """How many times as long as an H100 it takes, at most as coarse as that."""
        return GPU_TYPES[0].teraflops / self.teraflops


GPU_TYPES = (
    GpuType("H100 80 GB", 79.6, 989),
    GpuType("H200 141 GB", 140.4, 989),
    GpuType("B200 180 GB", 179.1, 2250),
    GpuType("A100 80 GB", 80.0, 312),
    GpuType("A100 40 GB", 40.0, 312),
    GpuType("L40S 48 GB", 45.0, 362),
    GpuType("L4 24 GB", 22.5, 121),
    GpuType("RTX 4090 24 GB", 24.0, 165),
)
"""The first is the one that estimates assume where nothing is given. Source: NVIDIA's data sheets."""


def find_gpu_type(text: str) -> GpuType:
    """Return the type that a name, or its beginning, means; spaces and capitals do not count.

    Raises:
        FieldError: None or several are meant.
    """
    found = [gpu for gpu in GPU_TYPES if _plain(gpu.name).startswith(_plain(text))]
    if len(found) != 1:
        names = ", ".join(gpu.name for gpu in found or GPU_TYPES)
        raise FieldError(f"expected one of {names}, got {text!r}; for another, set verl.gpu_gib.", "--gpu")
    return found[0]


def type_of(gib: float | None) -> GpuType | None:
    """Return the type with this memory; None of another size, the assumed one where no size is known."""
    return GPU_TYPES[0] if gib is None else next((gpu for gpu in GPU_TYPES if gpu.gib == gib), None)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
