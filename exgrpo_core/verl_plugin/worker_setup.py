"""What every process of verl imports before it builds a model (`model.external_lib`).

Registers the agent loop and the rollout replica without vLLM. On the CPU it also makes the process group that verl
0.9.1 cannot make there: it asks torch for the backend "cpu:gloo,cpu:gloo", which names one device twice.
"""

import os

import torch.distributed
from verl.utils.device import get_device_name

from exgrpo_core.verl_plugin.agent_loop import PromptTokensLoop
from exgrpo_core.verl_plugin.cpu_platform import PLATFORM_NAME
from exgrpo_core.verl_plugin.hf_replica import HfReplica

REGISTERED = (PromptTokensLoop, HfReplica)
"""What importing this module made known to verl."""


def join_process_group() -> None:
    """Join the workers' process group over gloo, unless this process is no worker or has joined already."""
    if os.environ.get("WG_BACKEND") == "ray" and not torch.distributed.is_initialized():
        rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        torch.distributed.init_process_group("cpu:gloo", rank=rank, world_size=world_size)


if get_device_name() == PLATFORM_NAME:
    join_process_group()
