"""The supervisor's own program, with toy workers."""

import sys

from exgrpo.jobs.execution.supervisor.__main__ import main
from exgrpo.jobs.runs.launchers.local import LocalLauncher
from tests.jobs.execution.supervisor.toy_bench import TOY_WORKER

if __name__ == "__main__":
    sys.exit(main(launcher=LocalLauncher(TOY_WORKER)))
