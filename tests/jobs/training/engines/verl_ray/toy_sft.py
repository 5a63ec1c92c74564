"""A worker of verl's SFT whose ranks train nothing: everything but verl itself is real, torchrun included."""

import sys

from exgrpo.jobs.execution.worker.__main__ import main
from exgrpo.jobs.training import verl_sft

RANK_MODULE = "tests.jobs.training.engines.verl_ray.toy_rank"

if __name__ == "__main__":
    verl_sft.ENTRY_MODULE = RANK_MODULE
    sys.exit(main(sys.argv[1:]))
