from pathlib import Path

import pytest

from jobs.runs.directory import RunDirectory
from jobs.specs.train import TrainSpec


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(tmp_path / "runs", TrainSpec(name="a run"))
