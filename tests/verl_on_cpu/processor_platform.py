"""A platform that lets verl 0.9.1 train on processors without a GPU; chosen with VERL_PLATFORM=cpu.

Loaded at the end of verl's import (`registration.py`), so nothing heavy is imported here.
"""

import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from verl.plugin.platform import PlatformBase, PlatformRegistry

PLATFORM_NAME = "cpu"


def _no_op(*_arguments: Any, **_options: Any) -> None:
    """Replace device calls that have no meaning without a device."""


def _make_device_module() -> types.ModuleType:
    """Return `torch.cpu` with the memory, cache and seed calls that verl makes on a device module."""
    module = types.ModuleType("exgrpo_cpu_device")
    for name in dir(torch.cpu):
        if not name.startswith("__"):
            setattr(module, name, getattr(torch.cpu, name))
    replacements: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "manual_seed": torch.manual_seed,
        "manual_seed_all": torch.manual_seed,
        "mem_get_info": lambda *_arguments: (0, 0),
        "get_rng_state": lambda *_arguments: torch.get_rng_state(),
        "set_rng_state": lambda state, *_arguments: torch.set_rng_state(state),
        "get_device_name": lambda *_arguments: PLATFORM_NAME,
    }
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"):
        replacements[name] = lambda *_arguments: 0
    for name in ("set_device", "synchronize", "empty_cache", "ipc_collect", "reset_peak_memory_stats"):
        replacements[name] = _no_op
    for name, replacement in replacements.items():
        setattr(module, name, replacement)
    return module


_DEVICE_MODULE = _make_device_module()


@PlatformRegistry.register(platform=PLATFORM_NAME)
class CpuPlatform(PlatformBase):
    """Processors as verl's device; collective operations go over gloo."""

    set_device = synchronize = set_allocator_settings = empty_cache = profiler_start = profiler_stop = cudart = _no_op

    @property
    def device_name(self) -> str:
        return PLATFORM_NAME

    @property
    def vendor_name(self) -> str:
        return PLATFORM_NAME

    @property
    def device_module(self) -> types.ModuleType:
        return _DEVICE_MODULE

    def is_available(self) -> bool:
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:  # noqa: ARG002 # verl's signature
        return False

    def current_device(self) -> str:
        return PLATFORM_NAME

    def device_count(self) -> int:
        return 1

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:  # noqa: ARG002 # verl's signature
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:  # noqa: ARG002 # verl's signature
        yield

    def ray_resource_name(self) -> str:
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False
