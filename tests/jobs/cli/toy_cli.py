"""The `exgrpo` command with toy workers."""

from exgrpo.jobs.cli.main import main
from exgrpo.jobs.runs.launchers import local
from tests.jobs.execution.supervisor.toy_bench import TOY_WORKER

local.WORKER_MODULE = TOY_WORKER

if __name__ == "__main__":
    main()
