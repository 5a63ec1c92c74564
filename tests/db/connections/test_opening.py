import shlex
import sqlite3
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from functools import partialmethod
from itertools import cycle
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url

from exgrpo.db.connections.opening import ForeignDatabaseError, OtherSchemaError, find_difference, open_database, reset
from exgrpo.db.connections.session import DatabaseError, parse_url
from exgrpo.db.ingest.annotations import annotate
from exgrpo.db.queries.metrics import metric_series
from exgrpo.db.queries.runs import list_notes, list_runs
from exgrpo.db.queries.trajectory_list import list_snippets
from exgrpo.db.rows.trajectories import TrajectoryFacets
from exgrpo.jobs.execution.supervisor import indexing
from exgrpo.jobs.execution.supervisor.indexing import describe_database, ingest_all, rebuild_index
from exgrpo.jobs.queries import table
from exgrpo.jobs.runs.attempts import write_outcome
from exgrpo_core.recording.run_status import RunStatus
from tests.db.recorded_runs import ingest_run, new_run, record_attempt
from tests.db.table_contents import contents
from tests.faults import used_workbench
from tests.postgres import create_postgres_database, pooled
from tests.tools import require_tool

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[3]


def test_opening_again_changes_nothing(database, tmp_path):
    before = contents(database)
    assert find_difference(database) is None
    open_database(database.url, tmp_path).close()
    assert contents(database) == before


def test_a_reset_drops_everything_and_taking_in_again_gives_it_back(database, tmp_path):
    run = new_run(tmp_path)
    record_attempt(run, range(1, 6))
    ingest_run(database, run)
    before = contents(database)
    reset(database)
    assert not any(rows for name, rows in contents(database).items() if name != "ingest_positions")
    assert list_snippets(database, TrajectoryFacets(words="trajectory")) == []
    ingest_run(database, run)
    assert contents(database) == before
    assert len(list_snippets(database, TrajectoryFacets(words="trajectory"), limit=100)) == len(before["trajectories"])


ANY_LOCALE = "TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"


def by_hand(url, *statements):
    engine = create_engine(parse_url(url), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
    engine.dispose()


@pytest.mark.parametrize(("encoding", "checks_schema"), [("LATIN1", True), ("SQL_ASCII", False)])
def test_encoding_without_every_letter_is_refused_with_the_command_for_another(
    postgres_server, encoding, checks_schema, tmp_path
):
    url = create_postgres_database(postgres_server, options=f"ENCODING '{encoding}' {ANY_LOCALE}")
    with pytest.raises(DatabaseError) as caught:
        open_database(url, tmp_path, checks_schema=checks_schema)
    with pytest.raises(DatabaseError):
        rebuild_index(tmp_path, url)
    program, *words = shlex.split(str(caught.value).split("`")[1])
    name = words[-1] = f"{words[-1]}_{checks_schema}".lower()
    subprocess.run([require_tool(program), *words], check=True, timeout=60)
    open_database(make_url(url).set(database=name).render_as_string(), tmp_path).close()


@pytest.mark.parametrize(
    "locale", [ANY_LOCALE, "TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'tr' LC_COLLATE 'C' LC_CTYPE 'C'"]
)
def test_any_collation_and_any_encoding_of_clients_hold_every_letter(postgres_server, locale, tmp_path):
    url = create_postgres_database(postgres_server, options=f"ENCODING 'UTF8' {locale}")
    by_hand(url, f"ALTER DATABASE {make_url(url).database} SET client_encoding = 'LATIN1'")
    run = new_run(tmp_path)
    record_attempt(run, range(1, 3))
    text = "\N{SNOWMAN} \N{GRINNING FACE} I\N{LATIN SMALL LETTER DOTLESS I}"
    with closing(open_database(url, tmp_path)) as database:
        ingest_run(database, run)
        annotate(database, "notes", run.run_id, {"at": datetime.now(UTC), "text": text})
        assert [note for _, note in list_notes(database, run.run_id)] == [text]
        assert len(list_snippets(database, TrajectoryFacets(words="trajectory TRAJECTORY"))) > 0


def test_tables_of_another_program_are_neither_added_to_nor_dropped(postgres_server, tmp_path):
    url = create_postgres_database(postgres_server)
    by_hand(url, "CREATE TABLE runs (run_uuid TEXT)", "CREATE TABLE alembic_version (version_num TEXT)")
    by_hand(url, "INSERT INTO alembic_version VALUES ('cc1f77228345')")
    for use in (lambda: open_database(url, tmp_path), lambda: rebuild_index(tmp_path, url)):
        with pytest.raises(ForeignDatabaseError):
            use()
    by_hand(url, "INSERT INTO runs VALUES ('still there')")


@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_file_of_another_program_that_a_url_names_is_left_as_it_is(journal, tmp_path):
    path = tmp_path / "of another.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute(f"PRAGMA journal_mode = {journal}")
        other.execute("CREATE TABLE runs (name TEXT)")
        files = {file.name: file.read_bytes() for file in tmp_path.iterdir() if file.suffix != ".db-shm"}
        for use in (open_database, lambda url, root: rebuild_index(root, url)):
            with pytest.raises(ForeignDatabaseError) as caught:
                use(f"sqlite:///{path}", tmp_path / "runs")
            assert "rebuild" not in str(caught.value)
        assert not describe_database(f"sqlite:///{path}", tmp_path / "runs")[0]
        assert {file: (tmp_path / file).read_bytes() for file in files} == files
        assert not any(tmp_path.glob("*unusable*"))


def test_pages_and_two_writers_share_two_connections_of_a_pooler(postgres_server, tmp_path):
    with pooled(create_postgres_database(postgres_server)) as url:
        runs = [new_run(tmp_path, run_id=f"run-{number}") for number in range(2)]
        for run in runs:
            record_attempt(run, range(1, 9), end=RunStatus.FINISHED)
        databases = [open_database(url, tmp_path) for _ in range(3)]
        with ThreadPoolExecutor(3) as pool:
            writes = [pool.submit(ingest_run, *pair) for pair in zip(databases[:2], runs, strict=True)]
            reads = [pool.submit(read_as_pages_do, databases[2]) for _ in range(12)]
            for done in [*writes, *reads]:
                done.result()
        with closing(open_database(None, tmp_path)) as alone:
            for run in runs:
                ingest_run(alone, run)
            assert list(map(len, read_as_pages_do(databases[2]))) == list(map(len, read_as_pages_do(alone)))
            assert [len(rows) for rows in contents(databases[0]).values()] == [
                len(rows) for rows in contents(alone).values()
            ]
        for database in databases:
            database.close()


def read_as_pages_do(database):
    found = list_runs(database), metric_series(database, "run-0", ["reward/mean"])["reward/mean"]
    facets = TrajectoryFacets(run_id="run-1", words="trajectory")
    return *found, list_snippets(database, facets, limit=1000)


OF_USERS = (
    "INSERT INTO ingest_positions VALUES ('journal', '1000000'), ('run:trained', 'far')",
    "INSERT INTO runs (run_key, run_id, name, status, spec, created_at, summary)"
    " VALUES (1, 'trained', 'old', 'finished', '{}', '2026-11-28 12:00:00', '{}')",
    "INSERT INTO tags VALUES (1, 'keep')",
    "INSERT INTO notes VALUES (1, '2026-11-28 12:00:00', 'Another.')",
    "INSERT INTO saved_cases VALUES (1, 'kept', 1, 0, 3, '2026-11-28 12:00:00')",
    "INSERT INTO verdict_overrides VALUES (1, 1, 1, true, '2026-11-28 12:00:00')",
    "INSERT INTO trajectory_marks VALUES (1, 'odd', 1, 2, 'the last word', '2026-11-28 12:00:00')",
)


@pytest.fixture
def used(tmp_path):
    used_workbench.make(tmp_path / "runs", 0)
    return tmp_path / "runs"


def shown(url, runs_root):
    with closing(open_database(url, runs_root)) as database:
        return used_workbench.tables(database)


def test_a_database_of_other_tables_is_built_again_with_all_that_users_wrote(database_url, used, monkeypatch, caplog):
    ingest_all(used, None)
    expected = used_workbench.tables(open_database(None, used))
    assert all(expected[name] for name in ("tags", "notes", "saved_cases", "verdict_overrides", "trajectory_marks"))
    kind = make_url(database_url).get_backend_name()
    tables = (Path(__file__).parent / f"schema_of_7ac6aec7.{kind}.sql").read_text().splitlines()
    by_hand(database_url, *tables, *OF_USERS)
    with pytest.raises(OtherSchemaError, match="exgrpo db rebuild"):
        open_database(database_url, used)
    assert "built from the run directories" in describe_database(database_url, used)[1]
    caplog.clear()
    monkeypatch.setattr(indexing, "PROGRESS_SECONDS", 0.0)
    monkeypatch.setattr(indexing.Indexer, "poll", partialmethod(indexing.Indexer.poll, 0.01))
    ingest_all(used, database_url)
    assert shown(database_url, used) == expected
    assert [entry.kind for entry in table.journal(used)].count("noted") == 2
    said = [record.getMessage() for record in caplog.records]
    assert any("is built again" in line for line in said)
    left = [int(line.rpartition(" ")[2].removesuffix(".")) for line in said if "still to be read" in line]
    falling = left[left.index(max(left)) :]  # until all runs are known, the number grows
    assert falling == sorted(falling, reverse=True)


DIFFERENCES = (
    "DROP TABLE runs", "DROP TABLE ingest_positions", "DROP INDEX trajectories_by_step",
    "ALTER TABLE steps DROP COLUMN sums", "UPDATE ingest_positions SET position = 'another' WHERE source = 'schema'",
    "DROP TABLE trajectory_search", "DROP TRIGGER trajectory_texts_inserted", "DROP INDEX runs_by_kind",
    "ALTER TABLE trajectory_texts DROP COLUMN search",
)  # fmt: skip
OF_POSTGRESQL = DIFFERENCES[-2:]
OF_SQLITE = DIFFERENCES[-4:-2]


def test_whatever_is_missing_the_database_is_built_again(database_url, tmp_path):
    is_sqlite = database_url.startswith("sqlite")
    run = new_run(tmp_path)
    record_attempt(run, range(1, 4), end=RunStatus.FINISHED)
    write_outcome(run.attempt_path(1), RunStatus.FINISHED, "")
    ingest_all(tmp_path, database_url)
    expected = shown(database_url, tmp_path)
    statements = [one for one in DIFFERENCES if one not in (OF_POSTGRESQL if is_sqlite else OF_SQLITE)]
    for statement, how in zip(statements, cycle((ingest_all, rebuild_index)), strict=False):
        is_parent = statement == "DROP TABLE runs"
        lone = ["PRAGMA foreign_keys = OFF"] if is_sqlite and is_parent else []
        cascade = " CASCADE" if is_parent and not is_sqlite else ""
        by_hand(database_url, *lone, statement + cascade)
        with pytest.raises(OtherSchemaError):
            open_database(database_url, tmp_path)
        how(tmp_path, database_url)
        assert shown(database_url, tmp_path) == expected, statement


def test_tables_of_another_program_beside_ours_stay(database_url, tmp_path):
    open_database(database_url, tmp_path).close()
    by_hand(database_url, "CREATE TABLE mine (name TEXT)", "INSERT INTO mine VALUES ('still there')")
    with closing(open_database(database_url, tmp_path)) as database:
        reset(database)
        with database.read() as connection:
            assert connection.exec_driver_sql("SELECT name FROM mine").scalar() == "still there"
