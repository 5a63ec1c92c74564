"""What `import verl` loads in every process (entry point `verl.plugins`): it makes this package known to verl.

A part is loaded when verl imports what it extends: few processes need verl's trainer, which takes seconds to import.
"""

from importlib import import_module
from typing import Any

from wrapt import register_post_import_hook

from exgrpo_core.verl_plugin.settings import TRAINER_MODE


def _register_trainer(trainer_base: Any) -> None:
    """Enter verl's registry of trainers: `trainer.v1.trainer_mode=exgrpo`."""

    class RegisteredTrainer(trainer_base.PPOTrainer):
        """Makes a `ReplayTrainer`, whose module imports parts of verl that import the registry themselves."""

        def __new__(cls, config: Any) -> Any:
            """Return the trainer that verl runs."""
            from exgrpo_core.verl_plugin.replay_trainer import ReplayTrainer

            return ReplayTrainer(config)

    trainer_base.register_trainer(TRAINER_MODE)(RegisteredTrainer)


register_post_import_hook(_register_trainer, "verl.trainer.ppo.v1.trainer_base")
register_post_import_hook(
    lambda _: import_module(f"{__package__}.agent_loop"), "verl.experimental.agent_loop.agent_loop"
)
register_post_import_hook(
    lambda _: import_module(f"{__package__}.fsdp_engine"), "verl.workers.engine.fsdp.transformer_impl"
)
