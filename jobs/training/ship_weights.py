"""Makes the shipped warm weights: `ATEN_CPU_CAPABILITY=avx2 python -m jobs.training.ship_weights`, two minutes.

It prints the checksum for `shipped_weights.py`.
"""

import hashlib

from safetensors.torch import save_file

from jobs.training.shipped_weights import SHIPPED_WEIGHTS
from jobs.training.warm_start import WarmStartSettings, teach_chains


def main() -> None:
    """Train the default warm model and write its weights."""
    policy, choice = teach_chains(WarmStartSettings())
    weights = {name: tensor.clone() for name, tensor in policy.model.state_dict().items()}
    made = {"seed": str(choice.seed), "accuracy": str(choice.accuracy), "processor": choice.processor}
    save_file(weights, SHIPPED_WEIGHTS, made)
    print(choice.describe(), hashlib.sha256(SHIPPED_WEIGHTS.read_bytes()).hexdigest())  # noqa: T201 (its output)


if __name__ == "__main__":
    main()
