from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import text

import db
from db.queries.code_analysis import code_lines, group_rates
from db.queries.trajectories import get_trajectory
from db.schema import upgrade
from db.session import open_database
from tests.db.recorded_chains import Response, Step, record_steps
from tests.db.recorded_runs import take_in

ADDED = ("correctness_rate", "code_rules", "has_python_block")
GROUP = [Response(0.1), Response(0.3, has_code=True), Response(0.9, is_correct=False), Response(0.9, is_correct=False)]


@pytest.fixture
def old_rows(new_database, tmp_path):
    """The rows of runs, trajectories and texts of a recorded run, as a database of revision 0004 holds them."""
    database = new_database("sqlite", tmp_path)
    take_in(database, record_steps(tmp_path, [Step({0: GROUP}), Step({1: GROUP[:1]})]))
    with database.read() as connection:
        rows = {
            table: [dict(row) for row in connection.execute(text(f"SELECT * FROM {table}")).mappings()]
            for table in ("runs", "trajectories", "trajectory_texts")
        }
    database.close()
    for row in rows["trajectories"]:
        for name in ADDED:
            del row[name]
    return rows


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


def test_trajectories_of_an_older_database_get_the_correctness_of_their_groups(old_rows, tmp_path):
    database = open_database(f"sqlite:///{tmp_path / 'old.db'}", tmp_path, upgrades=False)
    database.write(lambda connection: upgrade_to(connection, "0004"))
    for table, rows in old_rows.items():
        database.write(lambda connection, table=table, rows=rows: insert(connection, table, rows))
    upgrade(database)
    assert sorted(group_rates(database, "trained")) == [0.5, 1.0]
    lines = {(line.group, line.has_code): line.num_trajectories for line in code_lines(database, "trained")}
    assert (lines["medium", False], lines["medium", True], lines["all", False]) == (1, 1, 2)
    assert get_trajectory(database, "trained", 1).has_code is True
    database.close()
