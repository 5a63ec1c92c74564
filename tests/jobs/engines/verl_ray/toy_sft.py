"""A worker of verl's SFT whose ranks train nothing: everything but verl itself is real, torchrun included."""

import sys

from jobs.training import verl_sft
from jobs.worker.__main__ import main

RANK_MODULE = "tests.jobs.engines.verl_ray.toy_rank"

if __name__ == "__main__":
    verl_sft.ENTRY_MODULE = RANK_MODULE
    sys.exit(main(sys.argv[1:]))
