"""Other users of this machine can read nothing and hold no lock: folders are 0700 and files 0600 from their start."""

import os
import stat
import subprocess
import sys

import pytest

from jobs.runs.directory import RunDirectory
from jobs.specs.train import TrainSpec

pytestmark = pytest.mark.slow


def test_a_command_makes_files_for_its_user_alone(tmp_path):
    root = tmp_path / "runs"
    program = (
        "import os, sys; from pathlib import Path; from jobs.cli.main import main; os.umask(0o022); "
        "sys.argv = ['exgrpo', 'runs', '--runs-root', sys.argv[1]]; main()"
    )
    subprocess.run([sys.executable, "-c", program, str(root)], check=True, capture_output=True)
    made = [root, *root.rglob("*")]
    assert {"workbench", "workbench.db"} <= {path.name for path in made}
    others = [str(path) for path in made if stat.S_IMODE(path.stat().st_mode) & 0o077]
    assert others == []


def test_the_folder_of_a_run_is_private_where_the_runs_root_is_not(tmp_path):
    before = os.umask(0o022)
    try:
        run = RunDirectory.create(tmp_path, TrainSpec())
    finally:
        os.umask(before)
    assert stat.S_IMODE(run.path.stat().st_mode) == 0o700
