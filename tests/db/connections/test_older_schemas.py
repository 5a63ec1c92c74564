from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import text

import db
from db.connections.opening import open_database
from db.connections.schema import upgrade
from db.queries.code_analysis import code_lines, group_rates
from db.queries.trajectories import get_trajectory
from tests.db.recorded_chains import Response, Step, record_steps
from tests.db.recorded_runs import ingest_run

ADDED = ("correctness_rate", "code_rules", "has_python_block", "names_key", "metric_values")
TABLES = ("runs", "steps", "trajectories", "trajectory_texts", "replays", "buffer_changes")
EXTERNAL_ID = -2
GROUP = [Response(0.1), Response(0.3, has_code=True), Response(0.9, is_correct=False), Response(0.9, is_correct=False)]


@pytest.fixture
def old_rows(new_database, tmp_path):
    """The rows of a recorded run as a database of revision 0004 holds them, and its packed facts as of today."""
    database = new_database("sqlite", tmp_path)
    replayed = {0: (2, 1), 1: (EXTERNAL_ID, 0)}
    steps = [Step({0: GROUP}), Step({0: GROUP[:1], 1: GROUP[:1]}, inserted=[(1, 5)], replayed=replayed)]
    ingest_run(database, record_steps(tmp_path, steps))
    with database.read() as connection:
        rows = {
            table: [dict(row) for row in connection.execute(text(f"SELECT * FROM {table}")).mappings()]
            for table in TABLES
        }
        blocks = connection.execute(text("SELECT * FROM trajectory_blocks ORDER BY step")).all()
    database.close()
    for row in rows["trajectories"] + rows["steps"]:
        for name in ADDED:
            row.pop(name, None)
    return rows, blocks


def upgrade_to(connection, revision):
    config = Config()
    config.set_main_option("script_location", str(Path(db.__file__).parent / "migrations"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, revision)


def insert(connection, table, rows):
    names = list(rows[0])
    values = ", ".join(f":{name}" for name in names)
    connection.execute(text(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({values})"), rows)


@pytest.fixture
def upgraded(old_rows, tmp_path):
    database = open_database(f"sqlite:///{tmp_path / 'old.db'}", tmp_path, upgrades=False)
    database.write(lambda connection: upgrade_to(connection, "0004"))
    for table, rows in old_rows[0].items():
        database.write(lambda connection, table=table, rows=rows: insert(connection, table, rows))
    upgrade(database)
    yield database
    database.close()


def test_trajectories_of_an_older_database_get_the_correctness_of_their_groups(upgraded):
    assert sorted(group_rates(upgraded, "trained")) == [0.5, 1.0, 1.0]
    lines = {(line.group, line.has_code): line.num_trajectories for line in code_lines(upgraded, "trained")}
    assert (lines["medium", False], lines["medium", True], lines["all", False]) == (1, 1, 3)
    assert get_trajectory(upgraded, "trained", 1).has_code is True


def test_an_older_database_gets_the_packed_facts_that_a_new_one_has_without_external_replays(old_rows, upgraded):
    with upgraded.read() as connection:
        blocks = connection.execute(text("SELECT * FROM trajectory_blocks ORDER BY step")).all()
    assert blocks == old_rows[1]
    assert [len(block.replayed) for block in blocks] == [0, 4]
