"""GPUs by name: memory and speed of machines that are not at hand."""

import re
from dataclasses import dataclass

from exgrpo_core.errors import FieldError


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
