"""What `import verl` loads in every process (entry point `verl.plugins`): it makes this package known to verl.

A part is loaded when verl imports what it extends: few processes need verl's trainer, which takes seconds to import.
"""

import os
from importlib import import_module
from typing import Any

from wrapt import register_post_import_hook, wrap_function_wrapper
from xxhash import xxh3_64_hexdigest

from exgrpo_core.verl_plugin.settings import TRAINER_MODE


def _register_trainer(trainer_base: Any) -> None:
    """Enter verl's registry of trainers: `trainer.v1.trainer_mode=exgrpo`."""

    class RegisteredTrainer(trainer_base.PPOTrainer):
        def __new__(cls, config: Any) -> Any:
            from exgrpo_core.verl_plugin.trainer_v1 import ReplayTrainer

            return ReplayTrainer(config)

    trainer_base.register_trainer(TRAINER_MODE)(RegisteredTrainer)


def job_name() -> str:
    """Return a name that no other job on this host has: the first job of each Ray has the id 01000000."""
    import ray

    context = ray.get_runtime_context()
    return xxh3_64_hexdigest(f"{context.get_session_name()}/{context.get_job_id()}".encode())


def _name_sockets_of_senders(weights: Any) -> None:
    """Name the socket of each worker that sends weights to vLLM after its job, for verl by the job's id alone."""

    def create(method: Any, sender: Any, arguments: Any, options: Any) -> None:
        method(*arguments, **options)
        job_id = weights.ray.get_runtime_context().get_job_id()
        sender.zmq_handle = sender.zmq_handle.replace(f"-{job_id}-", f"-{job_name()}-")

    wrap_function_wrapper(weights, "ServerAdapter.__init__", create)


def _name_sockets_of_receivers(servers: Any) -> None:
    def create(method: Any, _server: Any, arguments: Any, options: Any) -> None:
        method(*arguments, **options)
        os.environ["VERL_RAY_JOB_ID"] = job_name()

    wrap_function_wrapper(servers, "vLLMHttpServer.__init__", create)


register_post_import_hook(_name_sockets_of_senders, "verl.workers.rollout.vllm_rollout.vllm_rollout")
register_post_import_hook(_name_sockets_of_receivers, "verl.workers.rollout.vllm_rollout.vllm_async_server")
register_post_import_hook(_register_trainer, "verl.trainer.ppo.v1.trainer_base")
register_post_import_hook(
    lambda tracking: import_module(f"{__package__}.logger").offer_logger(tracking), "verl.utils.tracking"
)
register_post_import_hook(
    lambda trainers: import_module(f"{__package__}.logger").record_dumps(trainers), "verl.trainer.ppo.v1.trainer_base"
)
register_post_import_hook(
    lambda _: import_module(f"{__package__}.agent_loop"), "verl.experimental.agent_loop.agent_loop"
)
register_post_import_hook(
    lambda _: import_module(f"{__package__}.fsdp_engine"), "verl.workers.engine.fsdp.transformer_impl"
)
