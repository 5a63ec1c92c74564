"""verl's merger of sharded weights, which leaves adapters next to them, and these merged into the weights.

`python -m exgrpo.jobs.training.engines.verl_ray.shard_merger merge --backend fsdp --local_dir SHARDS
--target_dir FOLDER`
"""

import shutil

from transformers import AutoModelForCausalLM

from exgrpo.jobs.training.engines.embedded.lora import merge_adapters
from exgrpo_core.verl_plugin.programs import merge_shards

_ADAPTERS_FOLDER = "lora_adapter"
"""Where verl's merger writes adapters, in peft's format."""


def main() -> None:
    """Write the model that the command line names."""
    folder = merge_shards()
    adapters = folder / _ADAPTERS_FOLDER
    if adapters.is_dir():
        base = AutoModelForCausalLM.from_pretrained(folder, dtype="auto", trust_remote_code=False)
        merge_adapters(adapters, base).save_pretrained(folder)
        shutil.rmtree(adapters)


if __name__ == "__main__":
    main()
