"""The supervisor's own program, with toy workers."""

import sys

from jobs.launchers.local import LocalLauncher
from jobs.supervisor.__main__ import main
from tests.jobs.supervisor.toy_bench import TOY_WORKER

if __name__ == "__main__":
    sys.exit(main(launcher=LocalLauncher(TOY_WORKER)))
