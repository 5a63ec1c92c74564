"""Row 4: a full disk during a write: one clear sentence, no old data lost, continues with space."""

import errno
import logging
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from db.connections.opening import open_database
from db.queries.metrics import metric_series
from db.queries.runs import get_run, list_attempts
from jobs.actions import run_actions
from jobs.actions.archive import ArchiveError, export_run, import_run
from jobs.actions.queueing import queue_job
from jobs.recording.event_reader import EventReader
from jobs.runs import lookup
from jobs.runs.attempts import write_outcome
from jobs.runs.checkpoints import find_fault, list_checkpoints
from jobs.runs.control import RunStatus
from jobs.runs.directory import RunDirectory, list_run_directories
from jobs.runs.journal import Journal
from jobs.runs.state import read_state
from jobs.supervisor.indexing import DatabaseIndex
from jobs.supervisor.open_index import ingest_all
from jobs.worker.__main__ import error_message
from tests.db.recorded_runs import new_run, record_attempt
from tests.faults import recorded
from tests.faults.phased_training import PhasedNumbers
from tests.faults.small_disk import SmallDisk, mounted
from tests.faults.small_training import StepControl, small_spec, train
from tests.jobs.supervisor.toy_bench import Bench, processes_of, toy_spec

pytestmark = pytest.mark.fault_row(4)

DISK_FULL = "The disk is full; free some space and resume the run."


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with mounted(tmp_path / "disk") as disk:
        yield disk


@pytest.fixture
def small_bench(disk: SmallDisk) -> Iterator[Bench]:
    """A supervisor, its runs and its database on the small disk."""
    bench = Bench(disk.path / "runs")
    bench.runs_root.mkdir()
    bench.start()
    yield bench
    disk.free()
    bench.supervisor.close()
    assert processes_of(bench.runs_root) == []


def test_a_run_on_a_full_disk_fails_with_a_sentence_and_goes_on_with_room(small_bench, disk, is_long, figure):
    num_times = 20 if is_long else 1
    run_id = small_bench.submit(toy_spec(500 * num_times, checkpoint_interval=5))
    for time in range(num_times):
        small_bench.look_until(run_id, RunStatus.RUNNING)
        small_bench.wait_for_step(run_id, 20 * time + 3)
        disk.fill()
        small_bench.look_until(run_id, RunStatus.FAILED)
        assert small_bench.supervisor.state_of(run_id).reason == DISK_FULL
        disk.free()
        run_actions.resume(small_bench.runs_root, run_id)
    small_bench.look_until(run_id, RunStatus.RUNNING)
    small_bench.wait_for_step(run_id, 20 * num_times + 3)
    run_actions.stop(small_bench.runs_root, run_id)
    small_bench.look_until(run_id, RunStatus.STOPPED)
    assert_whole(small_bench, run_id, num_times)
    figure("runs that reported a full disk and continued with space", f"{num_times} of {num_times}")


def assert_whole(bench: Bench, run_id: str, num_failures: int) -> None:
    """Each step is in the database once, and each failed attempt says why."""
    bench.supervisor.poll()
    num_steps = bench.step_of(run_id)
    database = open_database(None, bench.runs_root)
    index = DatabaseIndex(None, bench.runs_root)
    index.record_state(bench.run_of(run_id), read_state(bench.run_of(run_id)))
    index.refresh(60.0)
    index.close()
    points = metric_series(database, run_id, ["reward/mean"], 100_000)["reward/mean"]
    attempts = list_attempts(database, run_id)
    database.close()
    assert [point.step for point in points] == list(range(1, num_steps + 1))
    assert [row.status_reason for row in attempts] == [DISK_FULL] * num_failures + [""]


def test_a_run_that_waits_while_the_disk_is_full_starts_once_there_is_room(small_bench, disk):
    run_id = small_bench.submit(toy_spec(3))
    disk.fill()
    for _ in range(3):
        small_bench.supervisor.poll()
        assert small_bench.supervisor.state_of(run_id).status is RunStatus.QUEUED
    disk.free()
    small_bench.look_until(run_id, RunStatus.FINISHED)


@pytest.mark.parametrize("num_saves", [1, 2])
def test_a_checkpoint_without_room_leaves_the_older_ones_whole_and_the_run_ends_as_any_other(
    disk, tmp_path, num_saves, figure
):
    whole = RunDirectory.create(tmp_path / "whole", small_spec())
    assert train(whole) is RunStatus.FINISHED
    run = RunDirectory.create(disk.path / "runs", small_spec())
    with pytest.raises(Exception, match="No space left") as failure:
        train(run, StepControl(at_step=lambda step: disk.fill() if step == 3 * num_saves else None))
    assert error_message(failure.value) == DISK_FULL
    kept = list_checkpoints(run.checkpoints_path)
    assert len(kept) == num_saves - 1
    assert [find_fault(path) for path in kept] == [None] * len(kept)
    disk.free()
    assert train(run) is RunStatus.FINISHED
    assert recorded.policy_files(run, 12) == recorded.policy_files(whole, 12)
    assert recorded.buffer_content(run, 12) == recorded.buffer_content(whole, 12)
    assert recorded.experience_state(run, 12) == recorded.experience_state(whole, 12)
    figure(f"save number {num_saves} without room", "said so, older checkpoints whole, same end bit for bit")


@pytest.mark.fault_row(16)
@pytest.mark.parametrize("phase", ["rollout", "score", "update", "collecting", "evaluation", "save"])
def test_a_disk_that_is_full_in_any_phase_ends_the_run_with_a_sentence_and_changes_nothing(
    disk, tmp_path, phase, figure
):
    whole = RunDirectory.create(tmp_path / "whole", small_spec())
    assert train(whole) is RunStatus.FINISHED
    run = RunDirectory.create(disk.path / "runs", small_spec())
    letter = "w" if phase == "save" else phase[0]
    when = {"e": 3, "w": 2}.get(letter, 5)
    said = Counter[str]()

    def say(entered: str) -> None:
        said[entered] += 1
        if entered == letter and said[letter] == when:
            disk.fill()

    with pytest.raises(Exception, match="No space left") as failure:
        train(run, engine=PhasedNumbers(say))
    assert error_message(failure.value) == DISK_FULL
    assert [find_fault(path) for path in list_checkpoints(run.checkpoints_path)] == [None]
    disk.free()
    assert train(run) is RunStatus.FINISHED
    assert recorded.policy_files(run, 12) == recorded.policy_files(whole, 12)
    assert recorded.buffer_content(run, 12) == recorded.buffer_content(whole, 12)
    figure(f"full in {phase}", "said so, same end bit for bit")


def test_a_library_that_says_so_in_words_only_is_understood(disk):
    disk.fill()
    with pytest.raises(Exception, match="No space left") as failure:
        save_file({"weights": np.zeros(1 << 18)}, disk.path / "model.safetensors")
    assert error_message(failure.value) == DISK_FULL
    assert error_message(OSError(errno.EDQUOT, "Disk quota exceeded")) == DISK_FULL


def test_a_database_without_room_keeps_what_it_has_and_catches_up(disk, tmp_path, caplog, figure):
    caplog.set_level(logging.WARNING)
    run = new_run(tmp_path / "runs")
    record_attempt(run, range(1, 5))
    url = f"sqlite:///{disk.path / 'workbench.db'}"
    index = DatabaseIndex(url, run.path.parent)
    index.record_state(run, read_state(run))
    index.refresh(60.0)
    record_attempt(run, range(5, 60), end=RunStatus.FINISHED)
    disk.fill()
    index.record_state(run, read_state(run))
    index.refresh(60.0)
    assert "disk is full" in caplog.text
    assert not index.is_reachable
    assert 4 <= len(steps_in(url, run)) < 59
    disk.free()
    index = DatabaseIndex(url, run.path.parent)
    index.record_state(run, read_state(run))
    while index.is_behind:
        index.refresh(60.0)
    index.close()
    assert steps_in(url, run) == list(range(1, 60))
    figure("database without room", "said so, old rows whole, caught up")


def test_an_end_that_the_database_had_no_room_for_is_shown_when_the_next_attempt_is(tmp_path):
    run = new_run(tmp_path)
    for status, reason in ((RunStatus.FAILED, DISK_FULL), (RunStatus.LOST, "Gone."), (RunStatus.FINISHED, "")):
        record_attempt(run, [1])
        write_outcome(run.attempt_path(run.newest_attempt()), status, reason)
    ingest_all(tmp_path, None)
    database = open_database(None, tmp_path)
    attempts = [(row.status, row.status_reason) for row in list_attempts(database, run.run_id)]
    row = get_run(database, run.run_id)
    database.close()
    assert attempts == [("failed", DISK_FULL), ("lost", "Gone."), ("finished", "")]
    assert row.status == "finished"


def steps_in(url: str, run: RunDirectory) -> list[int]:
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
    with pytest.raises(ArchiveError, match="No space left on device"):
        export_run(run, target, overwrites=True)
    assert sorted(path.name for path in disk.path.iterdir()) == sorted([".filler", name])
    assert list(target.iterdir()) == [] if name == "folder" else target.read_bytes() == b"an older export"
    disk.free()
    copy = export_run(run, target, overwrites=True)
    imported = import_run(copy, tmp_path / "others")
    again = EventReader(RunDirectory.open(tmp_path / "others", imported)).read(max_steps=100)
    assert len(again.events) == len(EventReader(run).read(max_steps=100).events)
    figure(f"export to {name} without room", "said so, nothing left behind, older file kept")


@pytest.mark.parametrize("kind", ["archive", "folder"])
def test_an_import_without_room_says_so_and_leaves_nothing_behind(disk, tmp_path, kind):
    run = new_run(tmp_path / "runs")
    record_attempt(run, range(1, 30))
    source = export_run(run, tmp_path / "run.tar.gz") if kind == "archive" else run.path
    root = disk.path / "runs"
    root.mkdir()
    disk.fill()
    with pytest.raises(ArchiveError, match=r"No space left|0 bytes, which are free|0 are free|disk is full"):
        import_run(source, root)
    assert list(root.iterdir()) == []
    disk.free()
    assert import_run(source, root) == run.run_id


def test_a_submission_without_room_says_so_and_leaves_no_run_behind(disk):
    root = disk.path / "runs"
    kept = queue_job(root, toy_spec())
    disk.fill()
    with pytest.raises(lookup.CommandError, match="No space left on device"):
        queue_job(root, toy_spec())
    assert [run.run_id for run in list_run_directories(root)] == [kept]
    assert [path.name for path in root.iterdir() if path.name.startswith(".")] == []
    disk.free()
    other = queue_job(root, toy_spec())
    assert [entry.run_id for entry in Journal(root).entries()] == [kept, other]


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
