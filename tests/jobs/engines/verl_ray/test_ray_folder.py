import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from jobs.engines.verl_ray.ray_folder import ray_folder

HOLDER = """
import sys, time
from jobs.engines.verl_ray.ray_folder import ray_folder
with ray_folder() as folder:
    (folder / "session_1").mkdir()
    print(folder, flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def _own_temporary_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)


def test_folder_is_there_while_it_is_needed_and_gone_afterwards(tmp_path):
    with ray_folder() as folder:
        (folder / "logs").mkdir()
        assert folder.parent == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_folder_of_a_living_worker_stays_and_of_a_killed_one_goes_with_the_next(tmp_path):
    with subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True) as holder:
        left = Path(holder.stdout.readline().strip())
        with ray_folder():
            assert (left / "session_1").is_dir()
        holder.send_signal(signal.SIGKILL)
    assert (left / "session_1").is_dir()
    with ray_folder() as folder:
        assert list(tmp_path.iterdir()) == [folder]
