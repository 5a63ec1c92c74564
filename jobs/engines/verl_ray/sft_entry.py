"""verl's SFT trainer as one process of torchrun: `torchrun ... -m jobs.engines.verl_ray.sft_entry KEY=VALUE ...`."""

import signal
import sys

from jobs.launchers.end_with_starter import end_with_starter
from jobs.machine.process_memory import gc_paused


def main(overrides: list[str]) -> None:
    """Train with the overrides while torchrun lives."""
    # torchrun starts each process in a new session, so ending the worker's session misses them. This comes first,
    # since the imports of training take seconds.
    end_with_starter(signal.SIGKILL)
    _train(overrides)


def _train(overrides: list[str]) -> None:
    with gc_paused():
        from hydra import compose, initialize_config_module
        from verl.trainer.sft_trainer import run_sft
        from verl.utils.device import auto_set_device

        from jobs.engines.verl_ray.sft_overrides import SFT_CONFIG

    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose(SFT_CONFIG, overrides=overrides)
    auto_set_device(config)
    run_sft(config)


if __name__ == "__main__":
    main(sys.argv[1:])
