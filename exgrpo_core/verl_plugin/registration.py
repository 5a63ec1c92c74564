"""What `import verl` loads in every process (entry point `verl.plugins`): it makes this package known to verl.

A part is loaded when verl imports what it extends: few processes need verl's trainer, which takes seconds to import.
"""

from importlib import import_module

from wrapt import register_post_import_hook

_EXTENDED = {
    "verl.experimental.agent_loop.agent_loop": "agent_loop",
    "verl.trainer.ppo.v1.trainer_base": "registered_trainer",
    "verl.workers.engine.fsdp.transformer_impl": "fsdp_engine",
}
"""Modules of verl and the parts that enter their registries."""

# The platform at once: verl's modules look for it when they are imported.
import_module(f"{__package__}.cpu_platform")
for _module, _part in _EXTENDED.items():
    register_post_import_hook(lambda _, part=_part: import_module(f"{__package__}.{part}"), _module)
