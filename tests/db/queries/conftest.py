import pytest

from exgrpo_core.recording.run_status import RunStatus
from tests.db.conftest import KINDS
from tests.db.recorded_runs import ingest_run, new_run, record_attempt

NUM_STEPS = 10


@pytest.fixture(scope="session", params=KINDS)
def recorded_run(request, new_database, tmp_path_factory):
    folder = tmp_path_factory.mktemp("recorded")
    database, run = new_database(request.param, folder), new_run(folder)
    record_attempt(run, range(1, NUM_STEPS + 1), end=RunStatus.FINISHED)
    ingest_run(database, run)
    yield database, run.run_id
    database.close()
