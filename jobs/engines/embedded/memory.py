"""How much memory generation, scoring and training may take at a time.

Sizes follow from the machine and the model alone, never from what happens to be free: batches, and with them every
random draw, are the same when a run is repeated or resumed.
"""

import ctypes

import torch

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
"""Parameters of glibc's `mallopt`."""
CPU_BYTES = 2 * 2**30
GPU_SHARE = 0.6
"""Share of a GPU's memory beyond the model; the rest is for short-lived tensors and fragments."""
_BYTES_PER_WEIGHT = 18
"""Float32 weight, gradient and two moments, and a bfloat16 copy."""
_LEAST_BYTES = 2**30


def working_bytes(device: torch.device, num_weights: int) -> int:
    """Return the memory for keys and values of a batch of rollouts, or for the activations of a micro-batch."""
    if device.type != "cuda":
        return CPU_BYTES
    total: int = torch.cuda.get_device_properties(device).total_memory
    return max(_LEAST_BYTES, int(GPU_SHARE * (total - _BYTES_PER_WEIGHT * num_weights)))


def keep_freed_memory() -> None:
    """Let this process use freed memory again instead of giving it back: each page would be made anew, full of zeros.

    Logits and activations are freed and allocated many times a second. Does nothing where there is no `mallopt`.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_MAX, 0)
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)
