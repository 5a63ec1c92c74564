"""verl's SFT trainer as one process of torchrun: `torchrun ... -m jobs.engines.verl_ray.sft_entry KEY=VALUE ...`."""

import signal
import sys

from jobs.launchers.end_with_starter import end_with_starter
from jobs.machine.gc_tuning import gc_paused


def main(overrides: list[str]) -> None:
    """Train with the overrides while torchrun lives."""
    # torchrun starts each process in a new session, so ending the worker's session misses them. This comes first,
    # since the imports of training take seconds.
    end_with_starter(signal.SIGKILL)
    _train(overrides)


def _train(overrides: list[str]) -> None:
    with gc_paused():
        import torch.distributed
        from hydra import compose, initialize_config_module
        from verl.trainer.sft_trainer import SFTTrainer, run_sft
        from verl.utils.device import auto_set_device, get_device_name
        from verl.utils.distributed import destroy_global_process_group

        from exgrpo_core.verl_plugin.cpu_platform import PLATFORM_NAME
        from jobs.engines.verl_ray.sft_overrides import SFT_CONFIG

    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose(SFT_CONFIG, overrides=overrides)
    auto_set_device(config)
    if get_device_name() != PLATFORM_NAME:
        run_sft(config)
        return
    # verl 0.9.1 asks torch for the backend "cpu:gloo,cpu:gloo" here, which names one device twice.
    torch.distributed.init_process_group("cpu:gloo")
    try:
        SFTTrainer(config).fit()
    finally:
        destroy_global_process_group()


if __name__ == "__main__":
    main(sys.argv[1:])
