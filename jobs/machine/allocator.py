"""What this process's C library does with freed memory."""

import ctypes

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
"""Parameters of glibc's `mallopt`."""


def keep_freed_memory() -> None:
    """Keep freed memory in this process: the kernel would fill each page that comes back with zeros.

    Logits and activations are freed and allocated many times a second. Does nothing where there is no `mallopt`.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_MAX, 0)
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)
