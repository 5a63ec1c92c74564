"""verl's merger of sharded weights, in the process that calls it."""

from pathlib import Path

from verl.model_merger.__main__ import main as run_merger
from verl.model_merger.base_model_merger import parse_args


def merge_shards() -> Path:
    """Merge sharded weights as the command line says, and return the model's folder; adapters stay next to them."""
    run_merger()
    return Path(parse_args().target_dir)
