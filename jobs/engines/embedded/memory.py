"""How much memory generation, scoring and training may take at a time.

Sizes follow from the machine and the model alone, never from what happens to be free: batches, and with them every
random draw, are the same when a run is repeated or resumed.
"""

import torch

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
