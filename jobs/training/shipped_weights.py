"""The weights of the warm model for the default chains, shipped so that runs on all machines begin alike.

1,200 steps at a high rate amplify the last digit of a sum, which depends on the processor's instructions, so the same
seed knows its tables on one machine and not on another. `jobs.training.ship_weights` made the file.
"""

import hashlib
from pathlib import Path

import safetensors.torch
from safetensors import safe_open
from torch import Tensor

from jobs.training.data_rows import DataError

SHIPPED_WEIGHTS = Path(__file__).with_name("chains_warm.safetensors")
SHA256 = "9d0eb1fc31eddfd032d621c1c462f4258d160658e040f1cc5ac85f090b16aaee"


def read_shipped(path: Path = SHIPPED_WEIGHTS) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors, and the seed, accuracy and processor that they were made with.

    Raises:
        DataError: The file is missing or damaged.
    """
    content = path.read_bytes() if path.is_file() else b""
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise DataError(f"{path}: the shipped warm weights are missing or damaged; install the program again.")
    with safe_open(path, "pt") as opened:
        return safetensors.torch.load(content), dict(opened.metadata())
