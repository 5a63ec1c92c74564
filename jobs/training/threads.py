"""How many threads torch may use in a process of this project."""

import os

from exgrpo.jobs.specs.train import SpecError

THREADS_VARIABLE = "EXGRPO_NUM_THREADS"


def limit_threads() -> None:
    """Limit torch to the threads that the user allows, before its first product.

    Raises:
        SpecError: `EXGRPO_NUM_THREADS` is not a whole number of at least 1.
    """
    text = os.environ.get(THREADS_VARIABLE, "1")
    if not text.isdecimal() or int(text) < 1:
        raise SpecError(f"{THREADS_VARIABLE}: expected a whole number of at least 1, got {text!r}.")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    import torch

    torch.set_num_threads(int(text))
