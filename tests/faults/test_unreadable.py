"""What a user may not read, and what is no folder of a run, stops nothing else and is named."""

import contextlib
import ctypes
import os
import shutil
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from exgrpo.jobs.actions import run_actions
from exgrpo.jobs.cli.doctor import CheckResult, check_runs_root
from exgrpo.jobs.cli.main import app
from exgrpo.jobs.cli.workbench import Workbench
from exgrpo.jobs.runs.directory import CommandError, RunDirectory
from tests.jobs.cli.invoked import exgrpo
from tests.jobs.evaluation.judging.chain_runs import record_chains

_FIRST_TWO_POWERS = 0b110
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH, which let root read and write everything."""


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Powers(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inherited", ctypes.c_uint32))


@contextlib.contextmanager
def as_ordinary_user():
    """Let this thread read and write what its user may, even if that is root."""
    libc, header, powers = ctypes.CDLL(None), _Header(0x20080522, 0), (_Powers * 2)()
    assert libc.capget(ctypes.byref(header), powers) == 0
    before = powers[0].effective
    powers[0].effective = before & ~_FIRST_TWO_POWERS
    assert libc.capset(ctypes.byref(header), powers) == 0
    try:
        yield
    finally:
        powers[0].effective = before
        libc.capset(ctypes.byref(header), powers)


def _hide(name):
    return lambda run: (run / name).chmod(0)


def _link(target):
    def replace(run):
        shutil.rmtree(run)
        run.symlink_to(target)

    return replace


def _file(run):
    shutil.rmtree(run)
    run.write_text("no folder")


UNREADABLE = {name: _hide(name) for name in (".", "attempts", "run.json")} | {
    "journal": lambda run: (run.parent / "workbench" / "journal.jsonl").chmod(0),
    "names alone": lambda run: (run / "attempts" / "0001").chmod(0o400),
}
NO_RUNS = {
    "broken link": _link("/nowhere/at/all"),
    "file": _file,
    "not UTF-8": lambda run: os.mkdir(os.fsencode(run.parent) + b"/\xff\xfe\n"),
    "lost+found": lambda run: (run.parent / "lost+found").mkdir(mode=0),
}


@pytest.fixture
def root(tmp_path):
    for name in ("good", "bad"):
        record_chains(tmp_path / "runs", [["valid", "wrong"]], name)
    run_actions.tag(tmp_path / "runs", "good", "mine")
    yield tmp_path / "runs"
    for folder, folders, names in os.walk(os.fsencode(tmp_path)):
        for name in (*folders, *names):
            with contextlib.suppress(OSError):
                os.chmod(os.path.join(folder, name), 0o700)


@pytest.mark.parametrize("bad", [*UNREADABLE, *NO_RUNS])
def test_what_cannot_be_read_stops_nothing_else_and_is_named(root, tmp_path, bad):
    (UNREADABLE | NO_RUNS)[bad](root / "bad")
    is_unreadable = bad in UNREADABLE
    with as_ordinary_user():
        assert "good" in exgrpo(root, "runs")
        assert "good" in exgrpo(root, "show", "good")
        exgrpo(root, "db", "rebuild")
        exgrpo(root, "verify", code=int(is_unreadable))
        left_out = exgrpo(root, "backup", tmp_path / "all.tar", code=int(is_unreadable))
        assert not is_unreadable or str(root) in left_out
        found = check_runs_root(root)
        if bad != "journal":
            exgrpo(root, "clone", "good", "--submit")
    assert (found.result is CheckResult.WARNING) == (bad == ".")
    exgrpo(tmp_path / "restored", "backup", "--restore", tmp_path / "all.tar")


def test_a_run_of_another_user_is_refused_with_the_reason(root):
    (root / "bad").chmod(0)
    with as_ordinary_user(), pytest.raises(CommandError, match=os.strerror(13)):
        RunDirectory.open(root, "bad")


def test_a_root_that_cannot_be_written_is_read_and_what_writes_is_refused(root, tmp_path, monkeypatch):
    (root / "workbench" / "journal.jsonl").chmod(0o400)
    shutil.copytree(root / "good", tmp_path / "good")
    for folder in (root, root / "workbench"):
        folder.chmod(0o500)
    workbench = Workbench(root, None, [])
    asks = "import sys, sqlite3, time; rows = []\nwhile len(rows) < 2:\n    time.sleep(0.05)\n"
    asks += "    try: rows = sqlite3.connect(sys.argv[1]).execute('select name from runs').fetchall()\n"
    asks += "    except sqlite3.Error: pass\nopen(sys.argv[2], 'w').write(str(rows))"
    started = []

    def start_pages():
        index = workbench._environment["EXGRPO_DATABASE_URL"].removeprefix("sqlite:///")
        command = [sys.executable, "-c", asks, index, str(tmp_path / "seen")]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE))
        return started[0]

    monkeypatch.setattr(workbench, "_start_pages", start_pages)
    with as_ordinary_user():
        for words in (["runs"], ["show", "good"], ["verify"], ["backup", tmp_path / "all.tar"], ["query", "judges"]):
            exgrpo(root, *words)
        for words in (["annotate", "tag", "good", "x"], ["clone", "good", "--submit"], ["import", tmp_path / "good"]):
            result = CliRunner().invoke(app, [*map(str, words), "--runs-root", str(root)])
            assert (result.exit_code > 0, str(root) in result.stderr) == (True, True)
        assert workbench.serve(opens_browser=False) == 0
    with started[0]:
        assert (tmp_path / "seen").read_text().count("chains") == 2
