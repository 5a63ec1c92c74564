"""Row 4: a full disk during a write: one clear sentence, no old data lost, continues with space."""

import logging
import re
import resource
import shutil
from collections import Counter
from contextlib import contextmanager

import pytest
import torch
from safetensors.torch import save_file

from exgrpo.db.connections.opening import open_database
from exgrpo.db.queries.metrics import metric_series
from exgrpo.jobs.actions import run_actions
from exgrpo.jobs.actions.archive import ArchiveError, export_run, import_run
from exgrpo.jobs.actions.queueing import queue_job
from exgrpo.jobs.execution.supervisor.indexing import Indexer
from exgrpo.jobs.execution.worker.__main__ import error_message
from exgrpo.jobs.runs.checkpoints import find_fault, list_checkpoints
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.journal import Journal
from exgrpo.jobs.runs.recording.event_reader import EventReader
from exgrpo_core.durable_files import append_line, reserve, write_whole
from exgrpo_core.recording.run_status import RunStatus
from tests.db.recorded_runs import new_run, record_attempt
from tests.faults import recorded
from tests.faults.phased_training import PhasedNumbers
from tests.faults.small_disk import SmallDisk, mounted
from tests.faults.small_training import small_spec, train
from tests.jobs.execution.supervisor.toy_bench import toy_spec

pytestmark = pytest.mark.fault_row(4)

DISK_FULL = r"No space left on device; free some space or inodes and resume the run\."

PHASES = ("rollout", "score", "update", "collecting", "evaluation", "save")
LIMITED = r"(.+: )?File too large( \(os error 27\))?; raise the limit of file sizes \(ulimit -f\) and resume the run\."


@pytest.fixture
def disk(tmp_path):
    with mounted(tmp_path / "disk") as disk:
        yield disk


@pytest.mark.fault_row(16)
@pytest.mark.parametrize(
    ("phase", "fill"),
    [
        *((phase, SmallDisk.fill) for phase in PHASES),
        *((phase, SmallDisk.use_inodes) for phase in ("collecting", "save")),
    ],
)
def test_a_disk_that_is_full_in_any_phase_ends_the_run_with_a_sentence_and_changes_nothing(
    disk, tmp_path, phase, fill, figure
):
    whole = RunDirectory.create(tmp_path / "whole", small_spec())
    assert train(whole) is RunStatus.FINISHED
    run = RunDirectory.create(disk.path / "runs", small_spec())
    letter = "w" if phase == "save" else phase[0]
    when = {"e": 3, "w": 2}.get(letter, 5)
    said = Counter[str]()

    def say(entered):
        said[entered] += 1
        if entered == letter and said[letter] == when:
            fill(disk)

    with pytest.raises(Exception, match="No space left") as failure:
        train(run, engine=PhasedNumbers(say))
    assert re.fullmatch(DISK_FULL, error_message(failure.value))
    assert [find_fault(path) for path in list_checkpoints(run.checkpoints_path)] == [None]
    disk.free()
    assert train(run) is RunStatus.FINISHED
    recorded.assert_same_end(run, whole)
    figure(f"{fill.__name__} in {phase}", "said so, same end bit for bit")


@pytest.fixture
def small_files():
    """No file of this process grows beyond 4 KiB, as with `ulimit -f` or on a disk that holds no larger one."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    @contextmanager
    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 12, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    return limited


@pytest.mark.parametrize(
    "write",
    [
        lambda path: write_whole(path, b"x" * (1 << 13)),
        lambda path: [append_line(path, b"x" * 100) for _ in range(100)], lambda path: path.write_text("x" * (1 << 13)),
        lambda path: reserve(path, 1 << 13), lambda path: save_file({"w": torch.zeros(1 << 13)}, path),
    ],
)  # fmt: skip
def test_a_limit_of_file_sizes_is_named_with_what_to_do(small_files, tmp_path, write):
    with pytest.raises(Exception, match="File too large") as failure, small_files():
        write(tmp_path / "file")
    assert re.fullmatch(LIMITED, error_message(failure.value))


def test_a_database_without_room_keeps_what_it_has_and_catches_up(disk, tmp_path, caplog, figure):
    caplog.set_level(logging.WARNING)
    run = new_run(tmp_path / "runs")
    record_attempt(run, range(1, 5))
    url = f"sqlite:///{disk.path / 'workbench.db'}"
    index = Indexer(url, run.path.parent)
    index.poll(60.0)
    record_attempt(run, range(5, 60), end=RunStatus.FINISHED)
    disk.fill()
    index.poll(60.0)
    assert "disk is full" in caplog.text
    assert not index.is_reachable
    assert 4 <= len(steps_in(url, run)) < 59
    disk.free()
    index = Indexer(url, run.path.parent)
    index.poll(60.0)
    while index.is_behind:
        index.poll(60.0)
    index.close()
    assert steps_in(url, run) == list(range(1, 60))
    figure("database without room", "said so, old rows whole, caught up")


def steps_in(url, run):
    database = open_database(url, run.path.parent)
    points = metric_series(database, run.run_id, ["reward/mean"], 1_000)["reward/mean"]
    database.close()
    return [point.step for point in points]


@pytest.mark.parametrize("name", ["run.tar.gz", "folder"])
def test_an_export_without_room_says_so_and_leaves_nothing_behind(disk, tmp_path, name, figure):
    run = new_run(tmp_path / "runs")
    record_attempt(run, range(1, 30))
    target = disk.path / name
    if name == "folder":
        target.mkdir()
    else:
        target.write_bytes(b"an older export")
    disk.fill()
    with pytest.raises(ArchiveError):
        export_run(run, target, overwrites=True)
    assert sorted(path.name for path in disk.path.iterdir()) == sorted([".filler", name])
    assert list(target.iterdir()) == [] if name == "folder" else target.read_bytes() == b"an older export"
    disk.free()
    imported = import_run(export_run(run, target, overwrites=True), tmp_path / "others")
    again = EventReader(RunDirectory.open(tmp_path / "others", imported)).read(max_steps=100)
    assert len(again.events) == len(EventReader(run).read(max_steps=100).events)
    figure(f"export to {name} without room", "said so, nothing left behind, older file kept")


def test_an_import_without_room_says_so_and_leaves_nothing_behind(disk, tmp_path):
    run = new_run(tmp_path / "runs")
    record_attempt(run, range(1, 30))
    root = disk.path / "runs"
    root.mkdir()
    for source in (export_run(run, tmp_path / "run.tar.gz"), run.path):
        disk.fill()
        with pytest.raises(ArchiveError):
            import_run(source, root)
        assert list(root.iterdir()) == []
        disk.free()
    assert import_run(run.path, root) == run.run_id


def test_a_note_without_room_is_refused_and_the_journal_stays_whole(disk):
    root = disk.path / "runs"
    run_id = queue_job(root, toy_spec())
    run_actions.note(root, run_id, "before")
    disk.fill()
    with pytest.raises(OSError, match="No space left on device"):
        run_actions.note(root, run_id, "x" * 8_000)
    disk.free()
    run_actions.note(root, run_id, "after")
    texts = [entry.data.get("text") for entry in Journal(root).entries()]
    assert texts == [None, "before", "after"]
    shutil.rmtree(root)
