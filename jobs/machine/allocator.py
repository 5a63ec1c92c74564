"""What this process does with freed memory."""

import ctypes
import os

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
"""Parameters of glibc's `mallopt`."""

NUM_CACHED_PRODUCTS = "64"
"""More than a micro-batch has. Of oneDNN's 1,024 a model of 135 million parameters grew by 100 MB an optimizer step."""


def keep_freed_memory() -> None:
    """Keep freed memory in this process: the kernel would fill each page that comes back with zeros.

    Logits and activations are freed and allocated many times a second. Call it before the first product: of the code
    that oneDNN writes for each shape of a product it then keeps the newest, since much of it, between activations,
    leaves gaps that nothing fits into. Memory is as before where there is no `mallopt`.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", NUM_CACHED_PRODUCTS)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_MAX, 0)
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)
