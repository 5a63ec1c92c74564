"""Every command that reads, and every page, over runs in odd states: no byte changes, and no process is ended."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import cycle

import pytest
from mcp import Client
from streamlit.testing.v1 import AppTest
from typer.testing import CliRunner

from exgrpo.app import settings
from exgrpo.app.page_list import PLACES
from exgrpo.db import DATABASE_URL_VARIABLE, SQLITE_FILE
from exgrpo.jobs.actions import run_actions
from exgrpo.jobs.actions.queueing import queue_job
from exgrpo.jobs.cli.agents import make_server
from exgrpo.jobs.cli.main import app
from exgrpo.jobs.execution.supervisor.indexing import Indexer
from exgrpo.jobs.queries import frames
from exgrpo.jobs.queries.table import QUERIES
from exgrpo.jobs.runs.attempts import Heartbeat, read_outcome, write_heartbeat, write_outcome
from exgrpo.jobs.runs.directory import list_run_directories
from exgrpo.jobs.runs.launchers.local import LocalLauncher
from exgrpo.jobs.runs.processes import ProcessIdentity, boot_id, group_members, signal_group
from exgrpo.jobs.runs.state import RayContact, read_state, write_contact
from exgrpo_core import recording
from exgrpo_core.process_setup import keep_private
from exgrpo_core.recording.run_status import RunStatus
from tests.app.conftest import MAIN_SCRIPT
from tests.db.recorded_runs import new_run, record_attempt
from tests.jobs.cli.invoked import WIDE
from tests.jobs.execution.supervisor.toy_bench import TOY_WORKER, Bench, toy_spec, wait_until

GONE = ProcessIdentity(2**22, 1.0, boot_id())
ELSEWHERE = ProcessIdentity(2**22, 1.0, "the boot of another machine")
STATES = {
    **dict.fromkeys(("claimed", "dead", "elsewhere", "emptied", "guessed", "interrupted", "nameless"), "lost"),
    **dict.fromkeys(("ray", "stopping", "torn", "unset"), "lost"),
    "finished": "finished", "loop": "running", "queued": "queued",
}  # fmt: skip
_OVERLAY = "mount -t overlay overlay -o lowerdir={root},upperdir={folder}/upper,workdir={folder}/work {root}"
_SEAL = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && if touch "$0/x" 2>/dev/null; then exit 9; fi; "$@"'


def abandon(root, name, worker):
    """Record a run whose attempt has no outcome; `worker` sent the last heartbeat."""
    run = new_run(root, toy_spec(9, name=name), run_id=name)
    run.request_attempt(1)
    if worker is None:
        run.claim_attempt(1)
    else:
        record_attempt(run, range(1, 6))
        at = datetime.now(UTC) - timedelta(hours=1)
        write_heartbeat(run.attempt_path(1), Heartbeat(worker, RunStatus.RUNNING, 5, at))
    age(run.attempt_path(1))
    return run


def age(attempt):
    long_ago = time.time() - 3600.0
    os.utime(attempt, (long_ago, long_ago))


def odd_runs(root):
    finished = new_run(root, toy_spec(9, name="finished"), run_id="finished")
    record_attempt(finished, range(1, 10), end=RunStatus.FINISHED)
    write_outcome(finished.attempt_path(1), RunStatus.FINISHED, "")
    run_actions.tag(root, "finished", "keep")
    abandon(root, "claimed", None)
    abandon(root, "dead", GONE)
    abandon(root, "elsewhere", ELSEWHERE)
    abandon(root, "stopping", GONE).request_stop()
    abandon(root, "interrupted", GONE).request_stop(for_shutdown=True)
    emptied = abandon(root, "emptied", GONE)
    emptied.claim_attempt(2)
    age(emptied.attempt_path(2))
    write_outcome(abandon(root, "guessed", GONE).attempt_path(1), RunStatus.LOST, "Gone.")
    abandon(root, "nameless", GONE).info_path.write_bytes(b"")
    abandon(root, "unset", GONE).spec_path.write_bytes(b'{"name": "to')
    torn = abandon(root, "torn", GONE)
    events = torn.attempt_path(1) / "record-0000-of-0001.jsonl.gz"
    events.write_bytes(events.read_bytes()[:-40])
    (torn.attempt_path(1) / "outcome.json").write_bytes(b'{"status": "fini')
    ray = abandon(root, "ray", ELSEWHERE)
    contact = RayContact(str(ray.attempt_path(1).resolve()), "http://127.0.0.1:1", "job", True, False, 0, 0.0)
    write_contact(ray.attempt_path(1), contact)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("odd") / "runs"
    root.mkdir()
    odd_runs(root)
    queue_job(root, toy_spec(9, name="queued"))
    loop = recording.start("loop", {"lr": 1e-6}, root)
    loop.log(1, {"loss": 0.5}, trajectories=[{"prompt": "1 + 1?", "response": "2", "reward": 1.0}])
    yield root
    loop.finish()


def contents(root, *without):
    """Return every file of a runs root but the database, which is a cache, and what else begins with these words."""
    files = {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.is_file()}
    left_out = str(SQLITE_FILE), *without
    return {name: path.read_bytes() for name, path in files.items() if not name.startswith(left_out)}


def look(root, out, *before):
    """Read everything in a process of its own, which a command starts; return the state of each run."""
    out.mkdir()
    program = "import sys, json, pathlib; from tests.app import test_reading_changes_nothing as this; "
    program += "print('\\n' + json.dumps(this.read_all(*map(pathlib.Path, sys.argv[1:]))))"
    command = [*before, sys.executable, "-c", program, str(root), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    states: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return states


def read_all(root, out):
    """Do everything that reads a runs root, and return the state of each run as `exgrpo runs` lists it."""
    keep_private()
    runner, run_ids = CliRunner(env=WIDE), [run.run_id for run in list_run_directories(root)]
    of_all = ["runs", "runs --all --json", "doctor", "verify", "bin list", "query runs", "query journal"]
    of_all += [f"backup {out / 'all.tar'}", "study status ablations"]
    of_each = ["show", "verify"]
    of_one = ["show --json", "logs", "clone", "query curves", "query attempts", "case find"]
    listed = ""
    named = [f"{words} {run_id}" for words in of_each for run_id in run_ids]
    # Each of the others on another run: they differ after the door through which all enter.
    named += [f"{words} {run_id}" for run_id, words in zip(run_ids, cycle(of_one), strict=False)]
    for words in [*of_all, *named]:
        result = runner.invoke(app, [*words.split(), "--runs-root", str(root)])
        assert not isinstance(result.exception, Exception), (words, result.exception)
        listed = result.stdout if words == "runs --all --json" else listed
    for words in (["publish", "finished", "dead", str(out / "page")], ["export", "dead", str(out / "dead.tar.gz")]):
        result = runner.invoke(app, [*words, "--runs-root", str(root)])
        assert result.exit_code == 0, result.output
    asyncio.run(ask_by_mcp(root))
    for run_id in run_ids:
        frames.open_run(root / run_id).metrics()
    open_pages(root, out, run_ids)
    return {row["name"]: row["status"] for row in json.loads(listed)}


async def ask_by_mcp(root):
    async with Client(make_server(QUERIES, root, None)) as client:
        for name, values in (("runs", {}), ("attempts", {"run_id": "dead"})):
            assert not (await client.call_tool(name, values)).is_error


def open_pages(root, out, run_ids):
    """Open every page for every run, by a database that follows the files, as pages of a read-only root have."""
    url = f"sqlite:///{out / 'pages.db'}"
    os.environ[DATABASE_URL_VARIABLE] = url
    index = Indexer(url, root)
    assert index.catch_up()
    settings.configure(settings.AppSettings(root, url))
    places = [*((name, query, "dead") for name, query in PLACES), *(("run", {}, run_id) for run_id in run_ids)]
    for name, query, run_id in places:
        page = AppTest.from_file(str(MAIN_SCRIPT), default_timeout=60)
        page.query_params.update({"run": run_id, **query})
        page.switch_page(f"app_pages/{name}.py").run()
        assert not page.exception, (name, query, run_id, page.exception)
    index.poll()
    index.close()


@pytest.mark.timeout(1200)
def test_nothing_that_reads_changes_a_file(root, tmp_path, monkeypatch):
    monkeypatch.setenv(DATABASE_URL_VARIABLE, "")
    before = contents(root)
    states = read_all(root, tmp_path)
    after = contents(root)
    assert [name for name in {*before, *after} if before.get(name) != after.get(name)] == []
    assert states == STATES


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_root_that_cannot_be_written_is_read_as_any_other(root, tmp_path):
    unshare = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    sealed = [*unshare, "sh", "-c", _SEAL, str(root)]
    if shutil.which("unshare") is None or subprocess.run([*sealed, "true"], check=False).returncode:
        pytest.skip("No file system can be made read-only here.")
    for file in root.glob(f"{SQLITE_FILE}*"):
        file.unlink()
    before = contents(root)
    assert look(root, tmp_path / "out", *sealed) == STATES
    assert contents(root) == before


@pytest.fixture
def mounted(tmp_path):
    """The command before which a root is a mount with locks of its own, on another machine, where one can be made."""
    for name in ("upper", "work", "trial/root", "trial/upper", "trial/work"):
        (tmp_path / name).mkdir(parents=True)
    trial = _OVERLAY.format(root=tmp_path / "trial/root", folder=tmp_path / "trial")
    if subprocess.run(["unshare", "-m", "sh", "-c", trial], check=False, capture_output=True).returncode:
        return []
    (tmp_path / "boot").write_text("another machine\n")
    mounts = _OVERLAY.format(root=tmp_path / "runs", folder=tmp_path)
    boot = f"mount --bind {tmp_path / 'boot'} /proc/sys/kernel/random/boot_id"
    return ["unshare", "-m", "sh", "-c", f'{mounts} && {boot} && exec "$@"', "sh"]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_looking_ends_no_process_on_this_machine_and_over_a_mount_with_locks_of_its_own(tmp_path, mounted):
    root = tmp_path / "runs"
    root.mkdir()
    bench = Bench(root)
    with closing(bench.start(max_running=1)):
        training = bench.run_of(bench.submit(toy_spec(100_000, name="training")))
        bench.look_until(training.run_id, RunStatus.RUNNING)
        bench.wait_for_step(training.run_id, 3)
        worker, step = read_state(training).heartbeat.worker, bench.step_of(training.run_id)
        odd_runs(root)
        if mounted:
            look(root, tmp_path / "first", *mounted)
            # What a program on the mount writes is in the upper folder, whichever run it is about.
            assert {path.name for path in (tmp_path / "upper").iterdir()} <= {"workbench"}
            assert bench.step_of(training.run_id) > step
    # On this machine there is no supervisor now; the training goes on, and a leader is dead whose child lives.
    orphaned = new_run(root, toy_spec(1, "starts-child", "stuck"), run_id="orphaned")
    orphaned.claim_attempt(1)
    orphaned.request_attempt(1)
    leader = LocalLauncher(TOY_WORKER).start(orphaned, 1, ())
    wait_until(lambda: len(group_members(leader)) > 1, "the child")
    os.kill(leader.pid, signal.SIGKILL)
    os.waitpid(leader.pid, 0)
    children, long_ago = group_members(leader), datetime.now(UTC) - timedelta(hours=2)
    write_heartbeat(orphaned.attempt_path(1), Heartbeat(leader, RunStatus.RUNNING, 2, long_ago))
    age(orphaned.attempt_path(1))
    before, step = contents(root, "workbench", training.run_id), bench.step_of(training.run_id)
    look(root, tmp_path / "second")
    assert contents(root, "workbench", training.run_id) == before
    assert group_members(leader) == children != []
    assert read_outcome(training.attempt_path(1)) is None
    assert bench.step_of(training.run_id) > step
    for identity in (leader, worker):
        signal_group(identity, signal.SIGKILL)
