"""A process that writes one heartbeat and then sleeps, holding no lock."""

import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from jobs.runs.attempts import Heartbeat, write_heartbeat
from jobs.runs.control import RunStatus
from jobs.runs.processes import identify

if __name__ == "__main__":
    identity = identify(os.getpid())
    assert identity is not None
    path = Path(sys.argv[1]) / "attempts" / f"{int(sys.argv[2]):04d}"
    write_heartbeat(path, Heartbeat(identity, RunStatus.RUNNING, 0, datetime.now(UTC)))
    time.sleep(600)
