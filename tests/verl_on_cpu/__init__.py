"""verl 0.9.1 on processors, for tests: verl itself trains on GPUs alone.

`VARIABLES`, which tests/conftest.py sets, make every process that imports verl load `registration.py`; `OVERRIDES` are
the settings of such a run.
"""

import os
from typing import Any

VARIABLES = {
    "VERL_PLATFORM": "cpu",
    "VERL_ENGINE_DEVICE": "cuda",
    "VERL_ENGINE_VENDOR": "nvidia",
    "VERL_USE_EXTERNAL_MODULES": "tests.verl_on_cpu.registration",
    "OMP_NUM_THREADS": "1",
    "TQ_NUM_THREADS": "1",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_worker_niceness": "0",
}
"""The platform, the device and vendor under which the training engine is registered, where both come from, and threads.

Ray counts more CPUs than there are cores, so it must not start an idle process for each. At the niceness 15 of Ray's
workers a run would wait for every other test.
"""
GENERATOR_VARIABLE = "VERL_ON_CPU_GENERATOR"
"""What generates: `hf`, in place of verl's vLLM, unless the variable says `vllm`, for vLLM's build for processors; with
`hf-stuck` the second exchange of weights never ends."""
STUCK = "This exchange of weights never ends."
"""What is printed then."""


_ACTOR, _REFERENCE = "actor_rollout_ref.actor", "actor_rollout_ref.ref"
_ROLLOUT = "actor_rollout_ref.rollout"
OVERRIDES = (
    f"{_ACTOR}.fsdp_config.use_torch_compile=False",
    f"+{_ACTOR}.fsdp_config.mixed_precision.param_dtype=fp32",
    f"+{_ACTOR}.fsdp_config.mixed_precision.reduce_dtype=fp32",
    f"{_REFERENCE}.fsdp_config.model_dtype=fp32",
    f"+{_REFERENCE}.fsdp_config.mixed_precision.param_dtype=fp32",
    f"+{_REFERENCE}.fsdp_config.mixed_precision.reduce_dtype=fp32",
    f"{_ROLLOUT}.dtype=float32",
    f"{_ROLLOUT}.enforce_eager=True",
    f"{_ROLLOUT}.free_cache_engine=False",
    f"+{_ROLLOUT}.enable_sleep_mode=False",
    f"{_ROLLOUT}.agent.num_workers=1",
    f"{_ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes=64",
    "reward.num_workers=1",
    "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
    "+ray_kwargs.ray_init.include_dashboard=False",
)
"""Settings of verl's trainer: float32, eager code, and few processes."""


def generator() -> str:
    """Return what generates in tests."""
    return os.environ.get(GENERATOR_VARIABLE, "hf")


def on_cpu(num_ranks: int, num_generating: int | None = None) -> dict[str, Any]:
    """Return the section `verl` of a specification: so many ranks, on GPUs that Ray counts although there are none.

    With `num_generating` there are as many more, which only generate.
    """
    gpus = f"+ray_kwargs.ray_init.num_gpus={num_ranks + (num_generating or 0)}"
    return {
        "gpus_per_node": num_ranks,
        "generating_gpus_per_node": num_generating,
        "seeded_requests": True,
        "overrides": [*OVERRIDES, gpus],
    }
