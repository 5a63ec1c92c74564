"""A supervisor whose workers are `tests.faults.small_worker`."""

import sys

from exgrpo.jobs.execution.supervisor.__main__ import main
from exgrpo.jobs.runs.launchers.local import LocalLauncher

if __name__ == "__main__":
    sys.exit(main(launcher=LocalLauncher("tests.faults.small_worker", sys.executable)))
