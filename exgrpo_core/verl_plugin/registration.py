"""What `import verl` loads in every process (entry point `verl.plugins`): it makes this package known to verl."""

from exgrpo_core.verl_plugin.cpu_platform import CpuPlatform

REGISTERED = (CpuPlatform,)
"""What importing this module made known to verl."""
