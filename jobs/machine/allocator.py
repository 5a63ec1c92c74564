"""What this process does with freed memory."""

import ctypes
import os

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
"""Parameters of glibc's `mallopt`."""

NUM_CACHED_PRODUCTS = "64"
"""Shapes of products, more than a micro-batch has; with oneDNN's 1,024 SmolLM2-135M grew by 100 MB a step."""


def keep_freed_memory() -> None:
    """Keep freed memory in this process: the kernel would fill each page that comes back with zeros.

    Logits and activations are freed and allocated many times a second. Call it before the first product: oneDNN writes
    code for each shape of a product, which lies between activations and leaves gaps that nothing fits into, so only
    the newest is kept. Freed memory is not kept where there is no `mallopt`.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", NUM_CACHED_PRODUCTS)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_MAX, 0)
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)
