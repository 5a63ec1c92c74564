"""Databases as each earlier schema's own program filled them: brought up to date, nothing of them is lost."""

import shutil
from array import array
from collections.abc import Iterator
from math import isnan
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Boolean, Column, Float, Integer, MetaData, String, Table, insert, inspect, select, text
from typer.testing import CliRunner

from db.connections.opening import open_database
from db.connections.schema import NewerSchemaError, current_revision, newest_revision, upgrade
from db.connections.session import Database
from db.queries import metrics, runs
from db.queries.benchmarks import list_scores
from db.queries.cases import sets_of_run
from db.queries.judge_work import get_verdicts
from db.queries.trajectory_list import count_trajectories, list_snippets
from db.queries.trajectory_marks import list_marks
from db.rows.trajectories import TrajectoryFacets
from db.tables import models
from jobs.cli import main
from tests.db.connections.test_older_schemas import upgrade_to
from tests.db.connections.test_schema import is_ours
from tests.postgres import running_server

pytestmark = [
    pytest.mark.fault_row(12),
    # Alembic's reflection meets the table of FTS5, which has no types.
    pytest.mark.filterwarnings("ignore:.*reflect.*|Did not recognize type"),
]

STORED = sorted((Path(__file__).parent / "older_databases").glob("*.db"))
TRAINED = "20260101-000000-trained"
METRICS = Table(
    "metrics",
    MetaData(),
    Column("run_key", Integer),
    Column("key", String),
    Column("step", Integer),
    Column("attempt", Integer),
    Column("value", Float),
    Column("is_superseded", Boolean),
)
"""A row for each metric of a step, as schemas before 0010 had it."""

Rows = dict[str, list[dict[str, Any]]]


def stored_rows(database: Database) -> Rows:
    """Return the rows of every table that the database has, with the columns that it has."""
    found: Rows = {}
    with database.read() as connection:
        names = inspect(connection).get_table_names()
        for table in (*models.metadata.sorted_tables, METRICS):
            if table.name in names:
                known = {column["name"] for column in inspect(connection).get_columns(table.name)}
                columns = [column for column in table.c if column.name in known]
                found[table.name] = [dict(row) for row in connection.execute(select(*columns)).mappings()]
    return found


def opened_as_stored(path: Path, folder: Path) -> Database:
    shutil.copy(path, folder / "stored.db")
    return open_database(f"sqlite:///{folder / 'stored.db'}", folder, upgrades=False)


def make_on_postgresql(server: str, rows: Rows, revision: str, folder: Path) -> Database:
    """Return a database of that revision with the rows."""
    database = open_database(server, folder, upgrades=False)
    for statement in ("DROP SCHEMA public CASCADE", "CREATE SCHEMA public"):
        database.write(lambda connection, statement=statement: connection.exec_driver_sql(statement))
    database.write(lambda connection: upgrade_to(connection, revision))
    for table in (*models.metadata.sorted_tables, METRICS):
        if rows.get(table.name):
            database.write(lambda connection, table=table: connection.execute(insert(table), rows[table.name]))
    return database


@pytest.fixture(scope="module")
def postgres_server() -> Iterator[str]:
    with running_server() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def old(request: pytest.FixtureRequest, stored: Path, tmp_path: Path) -> Iterator[Database]:
    database = opened_as_stored(stored, tmp_path)
    assert current_revision(database) == stored.stem
    if request.param == "postgresql":
        rows = stored_rows(database)
        database.close()
        database = make_on_postgresql(request.getfixturevalue("postgres_server"), rows, stored.stem, tmp_path)
    yield database
    database.close()


@pytest.mark.parametrize("stored", STORED, ids=lambda path: path.stem)
def test_stored_database_is_brought_up_to_date_with_every_row(old, figure):
    before = stored_rows(old)
    assert len(before["trajectories"]) == 76
    upgrade(old)
    with old.read() as connection:
        context = MigrationContext.configure(connection, opts={"include_object": is_ours})
        assert compare_metadata(context, models.metadata) == []
    after = stored_rows(old)
    assert "metrics" not in after
    after["metrics"] = list(unpacked(after))
    for name, rows in before.items():
        kept = [{column: row[column] for column in rows[0]} for row in after[name]] if rows else []
        assert sorted(map(repr, kept)) == sorted(map(repr, rows)), name
    check_answers(old, before)
    figure("schemas upgraded from stored files", f"{len(STORED)} on SQLite and PostgreSQL, every row kept")


def unpacked(rows: Rows) -> Iterator[dict[str, Any]]:
    """Yield the rows that metrics had before they were packed."""
    names = {(row["run_key"], row["names_key"]): row["names"] for row in rows["metric_names"]}
    for row in (row for row in rows["steps"] if row["metric_values"] is not None):
        values = array("d", row["metric_values"])
        place = {name: row[name] for name in ("run_key", "step", "attempt", "is_superseded")}
        for key, value in zip(names[row["run_key"], row["names_key"]], values, strict=True):
            yield place | {"key": key, "value": None if isnan(value) else value}


def check_answers(database: Database, before: Rows) -> None:
    """Ask what pages ask of an upgraded database."""
    row = runs.get_run(database, TRAINED)
    assert row is not None
    assert (row.status, row.attempt, row.step, row.tags) == ("finished", 2, 5, ("keep",))
    assert [text for _, text in runs.list_notes(database, TRAINED)] == ["A note of then."]
    points = metrics.metric_series(database, TRAINED, ["reward/mean"])["reward/mean"]
    assert [point.step for point in points] == [1, 2, 3, 4, 5]
    assert list_snippets(database, TrajectoryFacets(TRAINED, "trajectory"))
    every = count_trajectories(database, TrajectoryFacets(run_id=TRAINED))
    assert every == sum(not row["is_superseded"] for row in before["trajectories"] if row["run_key"] == row_key(before))
    if "judge_votes" in before:
        assert get_verdicts(database, "trained", 0) is not None
    if "benchmark_scores" in before:
        assert {score.benchmark for score in list_scores(database)} == {"aime24"}
    if "saved_cases" in before:
        assert list(sets_of_run(database, "trained").values()) == [("kept",)]
        assert get_verdicts(database, "trained", 1).user is True
    if "trajectory_marks" in before:
        assert [(mark.mark, mark.num_trajectories) for mark in list_marks(database)] == [("kept", 1)]


def row_key(rows: Rows) -> int:
    return next(row["run_key"] for row in rows["runs"] if row["run_id"] == TRAINED)


def test_every_schema_before_the_newest_is_stored():
    revisions = Path(models.__file__).parents[1] / "migrations" / "versions"
    numbers = sorted(path.name.partition("_")[0] for path in revisions.glob("[0-9]*.py"))
    assert [*(path.stem for path in STORED), newest_revision()] == numbers


@pytest.mark.parametrize("stored", STORED[-1:], ids=lambda path: path.stem)
def test_schema_of_a_newer_program_is_refused_by_this_one_and_left_as_it_is(old, tmp_path, figure):
    upgrade(old)
    newer = text("UPDATE alembic_version SET version_num = '9999'")
    old.write(lambda connection: connection.execute(newer))
    rows = stored_rows(old)
    url = old.engine.url.render_as_string(hide_password=False)
    with pytest.raises(NewerSchemaError, match=r"schema 9999, newer than .* install the newer version"):
        open_database(url, tmp_path)
    done = CliRunner().invoke(main.app, ["runs", "--runs-root", str(tmp_path), "--database-url", url])
    assert done.exit_code != 0
    assert "schema 9999, newer than" in done.output
    assert stored_rows(old) == rows
    figure("a newer schema", "refused with a sentence, left as it is")
