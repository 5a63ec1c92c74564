"""Other users of this machine can read nothing and hold no lock: folders are 0700 and files 0600 from their start."""

import os
import stat
import subprocess
import sys

import pytest

from exgrpo.jobs.cli.doctor import check_runs_root
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.specs.train import TrainSpec
from exgrpo_core import recording

pytestmark = pytest.mark.slow


def test_a_command_makes_files_for_its_user_alone(tmp_path):
    root, rows = tmp_path / "runs", tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "1+1?", "response": "2", "reward": 1.0}\n', encoding="utf-8")
    program = "import os; from exgrpo.jobs.cli.main import main; os.umask(0o022); main()"
    for words in (["import", "--rollouts", rows], ["runs"]):
        command = [sys.executable, "-c", program, *words, "--runs-root", root]
        subprocess.run([*map(str, command)], check=True, capture_output=True)
    made = [root, *root.rglob("*")]
    assert {"workbench", "workbench.db"} <= {path.name for path in made}
    others = [str(path) for path in made if stat.S_IMODE(path.stat().st_mode) & 0o077]
    assert others == []


def again(run):
    run.finish()
    return [recording.reopen(run.path)]


@pytest.mark.parametrize(
    "record",
    [
        lambda root: [recording.start("a", {"lr": 1}, root)],
        lambda root: [recording.start("a", {}, root / "further" / "folders")],
        lambda root: again(recording.start("a", {}, root)),
        lambda root: [recording.start("a", {}, root, run_id="r", rank=rank, num_ranks=2) for rank in (0, 1)],
        lambda root: [recording.start("a", {}, root, run_id="r")],
    ],
    ids=["new", "in folders that are not there", "opened again", "of two ranks", "of a given id"],
)
@pytest.mark.parametrize("mask", [0, 0o022])
def test_what_a_loop_records_is_its_users_alone_whatever_its_umask(tmp_path, record, mask):
    before = os.umask(mask)
    try:
        runs = record(tmp_path / "runs")
        for run in runs[::-1]:
            run.log(1, {"loss": 1.0}, [{"prompt": "1?", "response": "1", "tokens": [1], "reward": 1.0}])
            run.note_left_out(1, "a row")
            run.finish()
    finally:
        os.umask(before)
    made = [tmp_path / "runs", *(tmp_path / "runs").rglob("*")]
    assert {path.name: oct(stat.S_IMODE(path.stat().st_mode)) for path in made} == {
        path.name: oct(0o700 if path.is_dir() else 0o600) for path in made
    }


@pytest.mark.parametrize(("mode", "result"), [(0o777, "warning"), (0o1777, "warning"), (0o775, "ok"), (0o700, "ok")])
def test_a_runs_root_that_exists_keeps_its_mode_and_doctor_says_if_all_can_write_there(tmp_path, mode, result):
    root = tmp_path / "runs"
    root.mkdir()
    root.chmod(mode)
    recording.start("a", {}, root).finish()
    assert stat.S_IMODE(root.stat().st_mode) == mode
    found = check_runs_root(root)
    assert (found.result, "chmod o-w" in found.advice) == (result, result == "warning")


def test_the_folder_of_a_run_is_private_where_the_runs_root_is_not(tmp_path):
    before = os.umask(0o022)
    try:
        run = RunDirectory.create(tmp_path, TrainSpec())
    finally:
        os.umask(before)
    assert stat.S_IMODE(run.path.stat().st_mode) == 0o700
