"""verl's SFT trainer as a process of torchrun.

`torchrun -m exgrpo.jobs.training.engines.verl_ray.sft_entry KEY=VALUE ...` runs it.
"""

import signal
import sys

from exgrpo.jobs.runs.launchers.end_with_starter import end_with_starter
from exgrpo_core.process_memory import gc_paused


def main(overrides: list[str]) -> None:
    """Train with the overrides while torchrun lives."""
    # torchrun starts each process in a new session, so ending the worker's session misses them. This comes first,
    # since the imports of training take seconds.
    end_with_starter(signal.SIGKILL)
    _train(overrides)


def _train(overrides: list[str]) -> None:
    with gc_paused():
        from exgrpo.jobs.training.engines.verl_ray.sft_overrides import SFT_CONFIG
        from exgrpo_core.verl_plugin.programs import train_sft

    train_sft(SFT_CONFIG, overrides)


if __name__ == "__main__":
    main(sys.argv[1:])
