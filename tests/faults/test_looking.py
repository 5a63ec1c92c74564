"""Looking at runs writes into none and ends no process: on this machine, and over a mount with locks of its own."""

import os
import signal
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from jobs.runs.attempts import Heartbeat, read_outcome, write_heartbeat, write_outcome
from jobs.runs.control import RunStatus
from jobs.runs.directory import RunDirectory
from jobs.runs.launchers.local import LocalLauncher
from jobs.runs.processes import ProcessIdentity, boot_id, group_members, signal_group
from jobs.runs.state import RayContact, read_state, write_contact
from tests.jobs.execution.supervisor.toy_bench import TOY_WORKER, Bench, toy_spec, wait_until
from tests.jobs.runs.launchers.ray_bench import ray_spec

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

LONG_AGO = datetime.now(UTC) - timedelta(hours=2)
DEAD = ProcessIdentity(2**22, 1.0, boot_id())
OVERLAY = "mount -t overlay overlay -o lowerdir={root},upperdir={upper},workdir={work} {root}"
OTHER_BOOT = "mount --bind {boot} /proc/sys/kernel/random/boot_id"


def can_mount(folder: Path) -> bool:
    for name in ("root", "upper", "work"):
        (folder / name).mkdir(parents=True)
    words = OVERLAY.format(root=folder / "root", upper=folder / "upper", work=folder / "work")
    return subprocess.run(["unshare", "-m", "sh", "-c", words], check=False, capture_output=True).returncode == 0


def claimed(root: Path, name: str, status: RunStatus | None = None, spec=None) -> RunDirectory:
    """A run whose attempt was claimed long ago, by a worker that is dead if it had a state."""
    run = RunDirectory.create(root, spec or toy_spec(3, name=name), run_id=f"run-{name}")
    run.claim_attempt(1)
    run.request_attempt(1)
    if status is not None:
        write_heartbeat(run.attempt_path(1), Heartbeat(DEAD, status, 2, LONG_AGO))
    return run


def torn(root: Path, file: str, content: bytes) -> RunDirectory:
    run = claimed(root, "torn-" + Path(file).stem, RunStatus.RUNNING)
    (run.path / file).write_bytes(content)
    return run


def odd_runs(root: Path) -> None:
    claimed(root, "claimed")
    claimed(root, "dead", RunStatus.RUNNING)
    claimed(root, "dead-stopping", RunStatus.STOPPING).request_stop()
    claimed(root, "interrupted", RunStatus.RUNNING).request_stop(for_shutdown=True)
    claimed(root, "empty-attempt", RunStatus.RUNNING).claim_attempt(2)
    write_outcome(claimed(root, "guessed", RunStatus.RUNNING).attempt_path(1), RunStatus.LOST, "Gone.", LONG_AGO)
    torn(root, "attempts/0001/heartbeat.json", b'{"pid": 12')
    torn(root, "attempts/0001/outcome.json", b'{"status": "fin')
    torn(root, "attempts/0001/record-0000.jsonl.gz", b"\x1f\x8b\x08\x00torn")
    torn(root, "spec.json", b'{"name": "to')
    torn(root, "run.json", b"")
    for name, is_submitted in (("ray", True), ("ray-waiting", False)):
        path = claimed(root, name, RunStatus.RUNNING, ray_spec("http://127.0.0.1:9")).attempt_path(1)
        where = str(path.resolve()), "http://127.0.0.1:9", f"exgrpo-{name}"
        write_contact(path, RayContact(*where, is_submitted, False, 0, LONG_AGO.timestamp()))
    for path in root.glob("run-*/attempts/*"):
        os.utime(path, (LONG_AGO.timestamp(),) * 2)


def contents(root: Path, *without: str) -> dict[str, tuple[int, bytes]]:
    files = [path for path in root.rglob("*") if path.is_file() and path.relative_to(root).parts[0] not in without]
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def look(root: Path, folder: Path, *prefix: str) -> None:
    folder.mkdir()
    words = [*prefix, sys.executable, "-m", "tests.faults.looker", str(root), str(folder)]
    looked = subprocess.run(words, check=False, capture_output=True, text=True)
    assert looked.returncode == 0, looked.stdout[-4000:] + looked.stderr[-4000:]


def test_no_command_and_no_page_changes_a_run_or_ends_a_process(tmp_path):
    root = tmp_path / "runs"
    root.mkdir()
    bench = Bench(root)
    with closing(bench.start(max_running=1)):
        training = bench.run_of(bench.submit(toy_spec(100_000, name="training")))
        bench.look_until(training.run_id, RunStatus.RUNNING)
        bench.wait_for_step(training.run_id, 3)
        worker = read_state(training).heartbeat.worker
        if can_mount(tmp_path / "trial"):
            odd_runs(root)
            elsewhere = {
                "root": root,
                "upper": tmp_path / "upper",
                "work": tmp_path / "work",
                "boot": tmp_path / "boot",
            }
            elsewhere["boot"].write_text("another machine\n")
            elsewhere["upper"].mkdir()
            elsewhere["work"].mkdir()
            mounts = f"{OVERLAY} && {OTHER_BOOT}".format(**elsewhere)
            step = bench.step_of(training.run_id)
            look(root, tmp_path / "first", "unshare", "-m", "sh", "-c", f'{mounts} && exec "$@"', "sh")
            # What a program on the mount writes is in the upper folder, whichever run it is about.
            assert {path.name for path in elsewhere["upper"].iterdir()} <= {"workbench"}
            assert bench.step_of(training.run_id) > step
        else:
            odd_runs(root)
    # On this machine there is no supervisor now; the training goes on, and a leader is dead whose child lives.
    orphaned = claimed(root, "orphaned", spec=toy_spec(1, "starts-child", "stuck"))
    leader = LocalLauncher(TOY_WORKER).start(orphaned, 1, ())
    wait_until(lambda: len(group_members(leader)) > 1, "the child")
    os.kill(leader.pid, signal.SIGKILL)
    os.waitpid(leader.pid, 0)
    children = group_members(leader)
    write_heartbeat(orphaned.attempt_path(1), Heartbeat(leader, RunStatus.RUNNING, 2, LONG_AGO))
    os.utime(orphaned.attempt_path(1), (LONG_AGO.timestamp(),) * 2)
    before, step = contents(root, "workbench", training.run_id), bench.step_of(training.run_id)
    look(root, tmp_path / "second")
    assert contents(root, "workbench", training.run_id) == before
    assert group_members(leader) == children != []
    assert read_outcome(training.attempt_path(1)) is None
    assert bench.step_of(training.run_id) > step
    for identity in (leader, worker):
        signal_group(identity, signal.SIGKILL)
