"""A supervisor whose workers are `tests.faults.small_worker`."""

import sys

from jobs.launchers.local import LocalLauncher
from jobs.supervisor.__main__ import main

if __name__ == "__main__":
    sys.exit(main(launcher=LocalLauncher("tests.faults.small_worker", sys.executable)))
