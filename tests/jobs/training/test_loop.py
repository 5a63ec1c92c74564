import contextlib
import os
from pathlib import Path

import pytest

from jobs.runs.directory import RunDirectory
from tests.faults.small_training import EightNumbers, small_spec, train


def open_files(folder):
    opened = []
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            opened.append(os.readlink(path))
    return [path for path in opened if path.startswith(str(folder))]


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="only Linux lists a process's open files")
def test_a_run_leaves_no_file_of_its_buffer_open_however_it_ends(tmp_path):
    run = RunDirectory.create(tmp_path, small_spec(4, 2))
    train(run)
    assert open_files(run.path) == []
    engine = EightNumbers()
    engine.update = None
    broken = RunDirectory.create(tmp_path, small_spec(4, 2))
    with pytest.raises(TypeError, match="not callable"):
        train(broken, engine=engine)
    assert open_files(broken.path) == []
