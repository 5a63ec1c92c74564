"""What `import verl` loads in every process (entry point `verl.plugins`): it makes this package known to verl.

Nothing here changes what verl does for those who ask for neither `trainer.v1.trainer_mode=exgrpo` nor the logger
`exgrpo`. What the plug-in's trainer replaces in workers and servers is imported by its worker class (`blocks`) or named
in its configuration (`own_exchange`).

A part is loaded when verl imports what it extends: few processes need verl's trainer, which takes seconds to import.
"""

from functools import wraps
from importlib import import_module
from typing import Any

from omegaconf import OmegaConf
from wrapt import register_post_import_hook

from exgrpo_core.errors import InputError
from exgrpo_core.verl_plugin.settings import TRAINER_MODE


def _register_trainer(trainer_base: Any) -> None:
    """Enter verl's registry of trainers: `trainer.v1.trainer_mode=exgrpo`."""

    class RegisteredTrainer(trainer_base.PPOTrainer):
        def __new__(cls, config: Any) -> Any:
            from exgrpo_core.verl_plugin.trainer_v1 import ReplayTrainer

            return ReplayTrainer(config)

    trainer_base.register_trainer(TRAINER_MODE)(RegisteredTrainer)


def _refuse_older_trainer(main: Any) -> None:
    """Have the older trainer of verl's command say that it does not replay: its loop is one function."""
    create = main.RayPPOTrainer.__init__

    @wraps(create)
    def create_or_refuse(trainer: Any, config: Any, *most_of_it: Any, **options: Any) -> None:
        if OmegaConf.select(config, "trainer.v1.trainer_mode") == TRAINER_MODE:
            raise InputError(
                f"trainer.use_v1: expected True if trainer.v1.trainer_mode is {TRAINER_MODE}, got False; set it, or "
                "start the run from the workbench, which replays on this trainer too."
            )
        create(trainer, config, *most_of_it, **options)

    main.RayPPOTrainer.__init__ = create_or_refuse


register_post_import_hook(_register_trainer, "verl.trainer.ppo.v1.trainer_base")
register_post_import_hook(_refuse_older_trainer, "verl.trainer.main_ppo_v0")
register_post_import_hook(
    lambda tracking: import_module(f"{__package__}.logger").offer_logger(tracking), "verl.utils.tracking"
)
register_post_import_hook(
    lambda trainers: import_module(f"{__package__}.logger").record_dumps(trainers), "verl.trainer.ppo.v1.trainer_base"
)
register_post_import_hook(
    lambda _: import_module(f"{__package__}.agent_loop"), "verl.experimental.agent_loop.agent_loop"
)
