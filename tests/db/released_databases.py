"""Runs roots with the database of each release, which later schemas upgrade.

`python -m tests.db.released_databases` stores that of this schema, before a release.
"""

import tarfile
import tempfile
from pathlib import Path

from db.connections.opening import newest_revision
from jobs.runs.attempts import write_outcome
from jobs.runs.control import RunStatus
from jobs.supervisor.open_index import ingest_all
from tests.db.recorded_runs import new_run, record_attempt

STORED = Path(__file__).parent / "released"


def store(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    archive = folder / f"{newest_revision()}.tar.gz"
    with tempfile.TemporaryDirectory() as name:
        run = new_run(Path(name) / "runs")
        record_attempt(run, range(1, 6))
        record_attempt(run, range(4, 9), seed=2, end=RunStatus.FINISHED)
        write_outcome(run.attempt_path(2), RunStatus.FINISHED, "")
        ingest_all(Path(name) / "runs", None)
        with tarfile.open(archive, "w:gz") as file:
            file.add(Path(name) / "runs", "runs")
    return archive


if __name__ == "__main__":
    store(STORED)
