"""NVIDIA GPUs whose memory two processes cannot share, as in some containers: verl sends weights by the host's memory.

verl believes of every NVIDIA GPU that its memory can be shared. `UNSHARED_VARIABLES` make each process of a run load
this platform through verl's own registry; nothing loads it otherwise.
"""

from verl.plugin.platform import PlatformRegistry
from verl.plugin.platform.platform_cuda import PlatformCUDA

from exgrpo_core.verl_plugin.settings import UNSHARED_PLATFORM


@PlatformRegistry.register(platform=UNSHARED_PLATFORM)
class UnsharedCuda(PlatformCUDA):
    """verl's own platform in all else."""

    def is_ipc_supported(self) -> bool:
        """Tell that no process can open another's memory."""
        return False
