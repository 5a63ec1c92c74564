import shlex
import shutil
import sqlite3
import subprocess
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from numpy.lib.recfunctions import drop_fields, repack_fields
from sqlalchemy import create_engine, make_url, select, update

from db.connections.opening import (
    ForeignDatabaseError,
    UnknownSchemaError,
    current_revision,
    newest_revision,
    open_database,
    reset,
    upgrade,
)
from db.connections.session import DatabaseError
from db.ingest.annotations import add_note
from db.ingest.event_rows import FACTS
from db.queries.metrics import metric_series
from db.queries.runs import list_notes, list_runs
from db.queries.trajectory_list import list_snippets
from db.rows.trajectories import TrajectoryFacets
from db.tables import models
from jobs.runs.control import RunStatus
from jobs.supervisor.open_index import describe_database, rebuild_index
from jobs.training.warm_start import SHIPPED_WEIGHTS
from tests.db.conftest import create_postgres_database
from tests.db.recorded_runs import ingest_run, new_run, record_attempt
from tests.db.released_databases import STORED, store
from tests.db.table_contents import contents
from tests.postgres import pooled
from tests.tools import require_tool

REPOSITORY = Path(__file__).resolve().parents[3]
OF_ONE_DIALECT = ("trajectory_search", "trajectory_texts_by_word", "search", "runs_by_kind")


def is_ours(_object, name, _kind, _is_reflected, _other):
    """What is one dialect's own, such as full-text search, is in the revision alone."""
    return not (name or "").startswith(OF_ONE_DIALECT)


def test_a_new_database_has_the_newest_schema_and_upgrading_again_changes_nothing(database):
    assert current_revision(database) == newest_revision()
    assert upgrade(database) == newest_revision()


def test_an_unknown_schema_is_refused_with_the_remedy_and_left_as_it_is(database, tmp_path):
    url = database.engine.url.render_as_string(hide_password=False)
    database.write(lambda connection: connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(UnknownSchemaError):
        open_database(url, tmp_path)
    assert current_revision(database) == "9999"
    reset(database)
    open_database(url, tmp_path).close()


def test_a_reset_drops_everything_and_taking_in_again_gives_it_back(database, tmp_path):
    run = new_run(tmp_path)
    record_attempt(run, range(1, 6))
    ingest_run(database, run)
    before = contents(database)
    reset(database)
    assert not any(contents(database).values())
    assert list_snippets(database, TrajectoryFacets(words="trajectory")) == []
    ingest_run(database, run)
    assert contents(database) == before
    assert len(list_snippets(database, TrajectoryFacets(words="trajectory"), limit=100)) == len(before["trajectories"])


ANY_LOCALE = "TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"


def by_hand(url: str, *statements: str) -> None:
    engine = create_engine(make_url(url).set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
    engine.dispose()


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
@pytest.mark.parametrize("upgrades", [True, False])
def test_encoding_without_every_letter_is_refused_with_the_command_for_another(
    postgres_server, encoding, upgrades, tmp_path
):
    url = create_postgres_database(postgres_server, options=f"ENCODING '{encoding}' {ANY_LOCALE}")
    with pytest.raises(DatabaseError) as caught:
        open_database(url, tmp_path, upgrades=upgrades)
    with pytest.raises(DatabaseError):
        rebuild_index(tmp_path, url)
    program, *words = shlex.split(str(caught.value).split("`")[1])
    name = words[-1] = f"{words[-1]}_{upgrades}".lower()
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
        add_note(database, run.run_id, datetime.now(UTC), text)
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


@pytest.mark.parametrize("release", [*sorted(STORED.glob("*.tar.gz")), "this one"])
# Alembic's reflection meets the table of FTS5, which has no types.
@pytest.mark.filterwarnings("ignore:.*reflect.*|Did not recognize type")
def test_upgraded_database_of_a_release_holds_what_is_built_again_from_its_files(release, tmp_path):
    archive = store(tmp_path) if release == "this one" else release
    with tarfile.open(archive) as file:
        file.extractall(tmp_path, filter="data")
    runs_root = tmp_path / "runs"
    with closing(open_database(None, runs_root)) as database:
        upgraded = contents(database)
        context = MigrationContext.configure(database.engine.connect(), opts={"include_object": is_ours})
        assert compare_metadata(context, models.metadata) == []
        context.connection.close()
    assert rebuild_index(runs_root, None) == 1
    with closing(open_database(None, runs_root)) as database:
        assert contents(database) == upgraded
    assert upgraded["trajectories"]


BEFORE_CONVERSATIONS = (
    "ALTER TABLE trajectory_texts DROP COLUMN search, DROP COLUMN role_words, DROP COLUMN messages",
    "ALTER TABLE trajectory_texts ADD COLUMN search tsvector GENERATED ALWAYS AS (to_tsvector('simple', text)) STORED",
    "ALTER TABLE trajectory_blocks DROP CONSTRAINT trajectory_blocks_pkey, DROP COLUMN conversations,"
    " DROP COLUMN tools, DROP COLUMN part, DROP COLUMN num_changes, ADD PRIMARY KEY (run_key, step, attempt)",
    "ALTER TABLE steps DROP COLUMN sums",
    "ALTER TABLE trajectories DROP COLUMN num_turns, DROP COLUMN num_tool_calls, DROP COLUMN num_tool_errors,"
    " DROP COLUMN tokens_by_role, DROP COLUMN extra, ALTER COLUMN reward SET NOT NULL,"
    " ALTER COLUMN is_truncated SET NOT NULL, ALTER COLUMN num_tokens SET NOT NULL, DROP COLUMN recorded_id",
    "UPDATE alembic_version SET version_num = '0001'",
)


def forget_rewards_of_blocks(connection):
    table = models.trajectory_blocks
    for block in connection.execute(select(table)).all():
        facts = repack_fields(drop_fields(np.frombuffer(block.facts, dtype=FACTS), "reward"))
        is_it = [table.c[name] == getattr(block, name) for name in ("run_key", "step", "attempt", "part")]
        connection.execute(update(table).where(*is_it).values(facts=facts.tobytes()))


@pytest.mark.filterwarnings("ignore:.*reflect.*|Did not recognize type")
def test_a_postgresql_database_of_schema_0001_is_upgraded_and_still_searched(postgres_server, tmp_path):
    url = create_postgres_database(postgres_server)
    run = new_run(tmp_path)
    record_attempt(run, range(1, 6))
    with closing(open_database(url, tmp_path)) as database:
        ingest_run(database, run)
        before = contents(database)
        database.write(forget_rewards_of_blocks)
    by_hand(url, *BEFORE_CONVERSATIONS)
    with closing(open_database(url, tmp_path)) as database:
        with database.engine.connect() as connection:
            context = MigrationContext.configure(connection, opts={"include_object": is_ours})
            assert compare_metadata(context, models.metadata) == []
        assert contents(database) == before
        assert len(list_snippets(database, TrajectoryFacets(words="number7"))) == 1


@pytest.mark.slow
def test_revisions_and_shipped_weights_are_part_of_an_installed_wheel(tmp_path):
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, tmp_path)
    for package in ("app", "jobs", "db", "exgrpo_core"):
        shutil.copytree(REPOSITORY / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    program = "import sys, setuptools.build_meta as build; print(build.build_wheel(sys.argv[1]))"
    built = tmp_path / "dist"
    built.mkdir()
    subprocess.run(
        [sys.executable, "-c", program, str(built)], cwd=tmp_path, check=True, capture_output=True, timeout=300
    )
    installed = tmp_path / "installed"
    shutil.unpack_archive(next(built.glob("*.whl")), installed, "zip")
    imports = "from pathlib import Path; from db.connections.opening import open_database"
    open_it = f"{imports}; open_database(None, Path(sys.argv[1]))"
    subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(installed)!r}); {open_it}", str(tmp_path)],
        cwd=installed,
        check=True,
        capture_output=True,
        timeout=120,
    )
    assert (tmp_path / "workbench" / "workbench.db").is_file()
    assert (installed / "jobs" / "training" / SHIPPED_WEIGHTS.name).is_file()
