import pytest

from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.specs.train import TrainSpec


@pytest.fixture
def run(tmp_path):
    return RunDirectory.create(tmp_path / "runs", TrainSpec(name="a run"))
