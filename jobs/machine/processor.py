"""What this machine's processor multiplies fast, from its flags."""

from pathlib import Path

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
