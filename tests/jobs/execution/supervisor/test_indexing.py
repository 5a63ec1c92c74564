import json
import os
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, make_url, update

from exgrpo.db.connections.opening import open_database, reset
from exgrpo.db.connections.session import Database, DatabaseError
from exgrpo.db.queries import metrics, runs, trajectories
from exgrpo.db.rows.chains_of_thought import SavedCase
from exgrpo.db.rows.trajectories import MarkedTrajectory
from exgrpo.db.tables import models
from exgrpo.jobs.actions import annotations, run_actions
from exgrpo.jobs.actions.queueing import queue_job
from exgrpo.jobs.execution.supervisor import indexing, run_index
from exgrpo.jobs.execution.supervisor.indexing import Indexer, ingest_all, rebuild_index
from exgrpo.jobs.execution.supervisor.loop import Supervisor, SupervisorSettings
from exgrpo.jobs.runs.attempts import write_outcome
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.journal import Journal, JournalKind
from exgrpo.jobs.specs.train import RecordingSpec, TrainSpec
from exgrpo_core import recording
from exgrpo_core.recording.file_recorder import FileRecorder
from exgrpo_core.recording.run_status import RunStatus
from tests.db.recorded_runs import record_attempt
from tests.db.table_contents import contents
from tests.postgres import create_postgres_database
from tests.step_reports import make_report

pytestmark = pytest.mark.slow


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str | None:
    if request.param == "sqlite":
        return None
    return create_postgres_database(request.getfixturevalue("postgres_server"))


def record(runs_root: Path, *steps: int, run: RunDirectory | None = None, ends: bool = True) -> RunDirectory:
    runs_root.mkdir(exist_ok=True)
    run = run or RunDirectory.create(runs_root, TrainSpec(num_steps=50))
    attempt = run.claim_attempt()
    recorder = FileRecorder(run, attempt, RecordingSpec())
    recorder.status(RunStatus.RUNNING)
    for step in steps:
        recorder.step(make_report(step))
    if ends:
        recorder.status(RunStatus.FINISHED)
        write_outcome(run.attempt_path(attempt), RunStatus.FINISHED, "")
    recorder.close()
    return run


@pytest.mark.parametrize("status", [RunStatus.FINISHED, RunStatus.FAILED, None])
def test_a_run_that_has_ended_is_never_shown_as_running_while_it_is_read_and_is_read_to_its_end(tmp_path, status):
    run = record(tmp_path, *range(1, 40), ends=False)
    if status is not None:
        write_outcome(run.attempt_path(1), status, "why")
    else:
        os.utime(run.attempt_path(1), (0, 0))  # as of a copy without a last state: its process is long gone
    expected = status or RunStatus.LOST
    index = run_index.RunIndexing(run)
    with closing(open_database(None, tmp_path)) as database:
        index.look()
        index.try_to_advance(database, give_up_at=0.0)
        assert 0 < runs.get_run(database, run.run_id).step < 39
        assert runs.get_run(database, run.run_id).status == expected
        assert runs.list_ends(database) == {}  # a new supervisor goes on here
        again = run_index.RunIndexing(run)
        again.look()
        again.try_to_advance(database, give_up_at=time.monotonic() + 60)
        assert (runs.get_run(database, run.run_id).step, runs.get_run(database, run.run_id).status) == (39, expected)
        assert run.run_id in runs.list_ends(database)


def shown_steps(runs_root: Path, database_url: str | None, run: RunDirectory) -> tuple[str, list[int]]:
    with closing(open_database(database_url, runs_root)) as database:
        series = metrics.metric_series(database, run.run_id, ["reward/mean"])["reward/mean"]
        return runs.get_run(database, run.run_id).status, [point.step for point in series]


def test_copied_run_folder_is_taken_in_once(database_url, tmp_path):
    run = record(tmp_path / "runs", *range(1, 40))
    for _ in range(3):
        assert ingest_all(tmp_path / "runs", database_url)
    assert shown_steps(tmp_path / "runs", database_url, run) == ("finished", list(range(1, 40)))


def test_resumed_run_goes_on_where_the_index_ended(tmp_path):
    runs_root = tmp_path / "runs"
    run = record(runs_root, 1, 2, 3)
    ingest_all(runs_root, None)
    record(runs_root, 3, 4, run=run)
    ingest_all(runs_root, None)
    assert shown_steps(runs_root, None, run) == ("finished", [1, 2, 3, 4])


def cut_off(runs_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take all runs in, but for the last thing, which is what their files say of their ends."""
    with monkeypatch.context() as patch:
        patch.setattr(run_index.RunIndexing, "_show", raise_unreachable)
        ingest_all(runs_root, None)


def test_end_of_an_attempt_is_that_of_its_outcome_after_an_indexing_that_was_cut_off(tmp_path, monkeypatch):
    run = record(tmp_path, 1)
    (run.attempt_path(1) / "outcome.json").unlink()
    write_outcome(run.attempt_path(1), RunStatus.FINISHED, "All done.")  # no event has these words
    cut_off(tmp_path, monkeypatch)
    ingest_all(tmp_path, None)
    with closing(open_database(None, tmp_path)) as database:
        [attempt] = runs.list_attempts(database, run.run_id)
    assert attempt.status_reason == "All done."


def test_end_of_an_earlier_attempt_is_shown_after_an_indexing_that_was_cut_off(tmp_path, monkeypatch):
    runs_root = tmp_path / "runs"
    run = record(runs_root, 1, 2, ends=False)
    write_outcome(run.attempt_path(1), RunStatus.LOST, "Gone.")
    record(runs_root, 3, run=run)
    cut_off(runs_root, monkeypatch)
    assert shown_attempts(runs_root, None, run) == ["running", "finished"]
    ingest_all(runs_root, None)
    assert shown_attempts(runs_root, None, run) == ["lost", "finished"]


def raise_unreachable(*_) -> None:
    raise DatabaseError("away")


def shown_attempts(runs_root: Path, database_url: str | None, run: RunDirectory) -> list[str]:
    with closing(open_database(database_url, runs_root)) as database:
        return [row.status for row in runs.list_attempts(database, run.run_id)]


def record_lost(runs_root: Path) -> RunDirectory:
    run = record(runs_root, 1, 2, ends=False)
    path = run.attempt_path(1)
    long_ago = path.stat().st_mtime - 3600
    os.utime(path, (long_ago, long_ago))
    return run


def test_run_of_a_worker_that_is_gone_is_shown_as_lost_with_all_it_recorded(tmp_path):
    run = record_lost(tmp_path / "runs")
    ingest_all(tmp_path / "runs", None)
    assert shown_steps(tmp_path / "runs", None, run) == ("lost", [1, 2])


def test_runs_that_have_ended_are_read_once(tmp_path):
    for make in (record, record_lost):  # an end by the outcome, at its time, and one at a time that nobody knows
        make(tmp_path)
    recording.start("recorded", None, tmp_path).finish()
    ingest_all(tmp_path, None)
    with closing(Indexer(None, tmp_path)) as index:
        index.poll(0.0)
        assert not index.is_behind


@pytest.mark.parametrize("is_next_program", [True, False])
def test_what_a_run_recorded_after_it_was_opened_again_is_shown(tmp_path, monkeypatch, is_next_program):
    monkeypatch.setattr(indexing, "_REST", 0.0)
    run = recording.start("recorded", None, tmp_path)
    run.log(1, {"reward/mean": 1.0})
    run.finish()
    with closing(Indexer(None, tmp_path, list_seconds=0.0)) as index:
        assert index.catch_up()
        time.sleep(0.002)  # times of ends are milliseconds
        run = recording.reopen(run.path)
        run.log(2, {"reward/mean": 0.5})
        run.finish()
        assert ingest_all(tmp_path, None) if is_next_program else index.catch_up()
    assert shown_steps(tmp_path, None, RunDirectory(run.path)) == ("finished", [1, 2])


def test_a_database_that_another_program_has_made_again_is_not_reset(database_url, tmp_path, monkeypatch):
    run = record(tmp_path, 1, 2)
    ingest_all(tmp_path, database_url)
    with closing(open_database(database_url, tmp_path)) as database:
        database.write(lambda connection: connection.execute(update(models.ingest_positions).values(position="old")))
    kept = []

    def reset_second(database: Database, **options: bool) -> None:
        monkeypatch.undo()
        ingest_all(tmp_path, database_url)
        reset(database, **options)
        kept.append(runs.get_run(database, run.run_id))

    monkeypatch.setattr(indexing, "reset", reset_second)
    ingest_all(tmp_path, database_url)
    assert [row and row.run_id for row in kept] == [run.run_id]


def test_a_database_that_another_program_empties_is_read_again(database_url, tmp_path):
    ended, run = record(tmp_path, 1), record(tmp_path, 1, ends=False)
    with closing(Indexer(database_url, tmp_path)) as index:
        assert index.catch_up()
        with closing(open_database(database_url, tmp_path)) as database:
            reset(database)
        record_attempt(run, [2, 3])
        assert index.catch_up()
    assert shown_steps(tmp_path, database_url, run)[1] == [1, 2, 3]
    assert shown_steps(tmp_path, database_url, ended) == ("finished", [1])


def test_a_run_that_is_deleted_during_a_poll_and_restored_is_shown(tmp_path, monkeypatch):
    runs_root = tmp_path / "runs"
    run = record(runs_root, 1, 2)
    apply_journal = indexing.apply_journal

    def delete_before(*options: Any) -> set[str]:
        monkeypatch.undo()
        shutil.move(run.path, tmp_path / "aside")
        Journal(runs_root).append(JournalKind.DELETED, run.run_id)
        return apply_journal(*options)

    with closing(Indexer(None, runs_root)) as index:
        assert index.catch_up()
        monkeypatch.setattr(indexing, "apply_journal", delete_before)
        index.poll()
        index.poll()
        shutil.move(tmp_path / "aside", run.path)
        assert index.catch_up()
    assert shown_steps(runs_root, None, run) == ("finished", [1, 2])


def test_what_users_wrote_on_steps_that_were_repeated_stays(database_url, tmp_path):
    run = record(tmp_path, 1, 2, 3)
    for trajectory_id in (0, 25):
        annotations.mark_trajectory(tmp_path, MarkedTrajectory(run.run_id, 1, trajectory_id, "odd", "why"))
        annotations.set_verdict(tmp_path, run.run_id, 1, trajectory_id, False)
    annotations.mark_case(tmp_path, "kept", SavedCase(run.run_id, 1, 24, 25))
    ingest_all(tmp_path, database_url)
    with closing(open_database(database_url, tmp_path)) as database:
        assert {row.step for row in trajectories.marked_trajectories(database, "odd")} == {1, 3}
    record_attempt(run, [3, 4], end=RunStatus.FINISHED, seed=1)
    write_outcome(run.attempt_path(2), RunStatus.FINISHED, "")
    ingest_all(tmp_path, database_url)
    with closing(open_database(database_url, tmp_path)) as database:
        shown = trajectories.marked_trajectories(database, "odd")
        found = contents(database)
    assert {(row.step, row.marked.comment) for row in shown} == {(1, "why"), (None, "why")}
    assert [row.text for row in shown if row.step is None] == [trajectories.IN_FILES_ONLY]
    assert [len(found[name]) for name in ("verdict_overrides", "saved_cases")] == [2, 1]
    rebuild_index(tmp_path, database_url)
    with closing(open_database(database_url, tmp_path)) as database:
        assert contents(database) == found


def test_tags_of_a_specification_go_with_the_folder_and_those_taken_off_stay_off(database_url, tmp_path):
    there, here = tmp_path / "there", tmp_path / "here"
    run_id = queue_job(there, TrainSpec(tags=("study:s", "x" * 100)))
    here.mkdir()
    shutil.copytree(there / run_id, here / run_id)
    run_actions.tag(here, run_id, "mine")
    run_actions.tag(here, run_id, "study:s", is_set=False)
    for change in (ingest_all, rebuild_index):
        change(here, database_url)
        with closing(open_database(database_url, here)) as database:
            assert runs.get_run(database, run_id).tags == ("mine", "x" * 100)


def test_something_else_in_the_place_of_a_table_makes_way(tmp_path):
    run = record(tmp_path, 1, 2)
    ingest_all(tmp_path, None)
    with closing(sqlite3.connect(tmp_path / "workbench" / "workbench.db")) as connection:
        connection.executescript("DROP TABLE runs; CREATE VIEW runs AS SELECT 1")
    for rebuild in (ingest_all, rebuild_index):
        rebuild(tmp_path, None)
        assert shown_steps(tmp_path, None, run) == ("finished", [1, 2])


def test_heartbeat_says_how_many_runs_are_still_to_read(tmp_path):
    runs_root = tmp_path / "runs"
    for _ in range(2):
        record(runs_root, 1, 2)
    queue_job(runs_root, TrainSpec(num_steps=50))
    settings = SupervisorSettings(max_running=0)
    with closing(Indexer(None, runs_root)) as index, closing(Supervisor(runs_root, settings=settings)) as supervisor:

        def num_unread(budget_seconds: float) -> int:
            index.poll(budget_seconds)
            supervisor.poll(index.num_unread)
            return json.loads((runs_root / "workbench" / "supervisor.json").read_text(encoding="utf-8"))["num_unread"]

        assert [num_unread(0.0), num_unread(60.0)] == [2, 0]


def test_a_run_whose_data_the_database_refuses_holds_up_no_later_run(database_url, tmp_path, caplog):
    runs_root = tmp_path / "runs"
    runs_root.mkdir()
    broken = RunDirectory.create(runs_root, TrainSpec(), run_id="a-broken")
    writer = FileRecorder(broken, broken.claim_attempt(), RecordingSpec())
    writer.record("checkpoint", {"step": 2, "path": "checkpoints/step"})
    writer.close()
    whole = record(runs_root, 1, 2, run=RunDirectory.create(runs_root, TrainSpec(), run_id="b-whole"))
    assert ingest_all(runs_root, database_url)
    assert shown_steps(runs_root, database_url, whole) == ("finished", [1, 2])
    assert f"{broken.run_id} is not shown completely" in caplog.text
    with closing(open_database(database_url, runs_root)) as database:
        row = runs.get_run(database, broken.run_id)
        assert (row.health, row.faults) == (("not_shown",), ())
        assert "exgrpo db rebuild" in row.not_shown
        assert broken.run_id not in runs.list_ends(database)


def test_user_that_may_only_read_sees_all_and_marks_no_run_as_damaged(postgres_server, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(indexing, "RETRY_SECONDS", 0.0)
    runs_root = tmp_path / "runs"
    run = record(runs_root, 1, 2)
    url = create_postgres_database(postgres_server)
    ingest_all(runs_root, url)
    engine = create_engine(make_url(url).set(drivername="postgresql+psycopg"))
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE ROLE reader LOGIN")
        connection.exec_driver_sql("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
    engine.dispose()
    reader = make_url(url).set(username="reader").render_as_string()
    record(runs_root, 3, run=run)
    for _ in range(2):
        index = Indexer(reader, runs_root)
        index.poll()
        index.poll()
        assert not index.is_reachable
        index.close()
    assert shown_steps(runs_root, reader, run) == ("finished", [1, 2])
    assert len([record for record in caplog.records if record.name == indexing.__name__]) == 2
    ingest_all(runs_root, url)
    assert shown_steps(runs_root, reader, run) == ("finished", [1, 2, 3])
    with closing(open_database(url, runs_root)) as database:
        assert runs.get_run(database, run.run_id).health == ()
