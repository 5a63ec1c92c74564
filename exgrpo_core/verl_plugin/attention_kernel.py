"""The kernel of FlashAttention 2 on the Hugging Face hub, which transformers takes where flash-attn is missing."""

import os
import platform
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

KERNEL = "kernels-community/flash-attn2"
REVISION = "v2"
"""Of v3 the backward pass fails where keys have fewer heads than queries (huggingface/kernels-community#1085)."""
_CACHE_VARIABLES = ("KERNELS_CACHE", "HF_HUB_CACHE")


def cached_kernel() -> Path | None:
    """Return the folder of the kernel that was fetched, named by its commit, where it has a build for this torch."""
    try:
        major, minor = re.findall(r"\d+", version("torch"))[:2]
        folder = hub_cache() / f"kernels--{KERNEL.replace('/', '--')}"
        snapshot = folder / "snapshots" / (folder / "refs" / REVISION).read_text(encoding="utf-8").strip()
    except (PackageNotFoundError, OSError):
        return None
    name = f"torch{major}{minor}-*-cu*-{platform.machine()}-{platform.system().lower()}"
    return snapshot if any(snapshot.glob(f"build/{name}/**/__init__.py")) else None


def use_cached_kernel() -> None:
    """Have `kernels` load what was fetched: transformers asks it for no revision, and without the hub for nothing."""
    if snapshot := cached_kernel():
        os.environ.setdefault("LOCAL_KERNELS", f"{KERNEL}={snapshot}")


def hub_cache() -> Path:
    """Return the hub's cache of this machine; as huggingface_hub finds it, without importing it."""
    for name in _CACHE_VARIABLES:
        if os.environ.get(name):
            return Path(os.environ[name]).expanduser()
    base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    return (Path(os.environ.get("HF_HOME") or base) / "hub").expanduser()
