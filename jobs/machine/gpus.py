"""The GPUs of this machine and how busy they are, as NVIDIA's own tool says; PyTorch is not loaded."""

import shutil
import subprocess
from dataclasses import dataclass

_TOOL = "nvidia-smi"
_FIELDS = ("index", "name", "utilization.gpu", "memory.used", "memory.total")
_TIMEOUT_SECONDS = 5.0
_MIB = 1024**2


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU; `busy_percent` is None where the driver does not tell (a share of a GPU)."""

    index: int
    name: str
    busy_percent: float | None
    used_bytes: int
    total_bytes: int


def list_gpus() -> list[Gpu]:
    """Return the GPUs in order, none where there is no driver or it does not answer."""
    tool = shutil.which(_TOOL)
    if tool is None:
        return []
    try:
        said = subprocess.run(
            [tool, f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits"],
            capture_output=True,
            timeout=_TIMEOUT_SECONDS,
            check=True,
            text=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return read_gpus(said)


def read_gpus(text: str) -> list[Gpu]:
    """Return the GPUs of the tool's comma-separated lines; lines that say something else are left out."""
    found = []
    for line in text.splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) != len(_FIELDS) or not parts[0].isdigit():
            continue
        index, name, busy, used, total = parts
        if used.isdigit() and total.isdigit():
            percent = float(busy) if busy.replace(".", "", 1).isdigit() else None
            found.append(Gpu(int(index), name, percent, int(used) * _MIB, int(total) * _MIB))
    return found
