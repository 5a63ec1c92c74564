"""What users type into searches, filters, orders and addresses is data: on SQLite and on a real PostgreSQL."""

import subprocess
from contextlib import suppress

import pytest
from sqlalchemy import MetaData, event, select

from exgrpo.db.ingest import events
from exgrpo.db.queries.run_filter import RunFilter
from exgrpo.db.queries.runs import count_runs, get_run, list_runs
from exgrpo.db.queries.text_search import SearchError, newest_matching
from exgrpo.db.queries.trajectory_list import list_snippets
from exgrpo.db.rows.trajectories import TrajectoryFacets
from exgrpo.jobs.runs.launchers.ray_jobs import shell_command
from exgrpo.jobs.runs.recording.event_reader import EventReader
from tests.db.conftest import *  # noqa: F403 - the databases' fixtures
from tests.db.recorded_chains import Response, Step, record_steps

pytestmark = pytest.mark.slow

FORMS = (
    "'", '"', "';--", "' OR '1'='1", "' OR 1=1 --", "') OR ('1'='1", "1; DROP TABLE runs", "'; DROP TABLE runs; --",
    "' UNION SELECT name, sql FROM sqlite_master --", "' UNION SELECT usename, passwd FROM pg_shadow --",
    "'; SELECT pg_sleep(9); --", "'||(SELECT pg_read_file('/etc/passwd'))||'", "'; COPY runs TO PROGRAM 'id'; --",
    "' AND load_extension('evil') --", "'; ATTACH DATABASE '/tmp/evil.db' AS evil; --", "%", "_", "\\'", "\\'; --",
    ":run", "?", "%s", "%(run)s", "{0}", "NEAR(a b)", 'a" OR text : "b', "nine OR x", "^a", "a & !b | c:*", "(", ")",
    "\N{MODIFIER LETTER APOSTROPHE} OR 1=1", "\N{FULLWIDTH APOSTROPHE} OR 1=1", "x" * 400, "$(id)", "`id`", "; id",
    "\nid", "\0", "run-1\0",
)  # fmt: skip


@pytest.fixture
def filled(database, tmp_path):
    """A database of each kind with one run in it, and what was said to it."""
    run = record_steps(tmp_path, [Step({0: [Response(text="so nine \\boxed{9}")]})], "run-1")
    events.register_run(database, run.read_run_info(), run.spec().model_dump(mode="json"))
    batch = EventReader(run).read()
    events.ingest_events(database, "run-1", batch.events, batch.position)
    executed = []
    event.listen(database.engine, "before_cursor_execute", lambda *call: executed.append(call[2]))
    return database, executed


def tables(database):
    reflected = MetaData()
    with database.read() as connection:
        reflected.reflect(connection)
        return {name: len(connection.execute(select(table)).all()) for name, table in reflected.tables.items()}


def test_what_is_typed_reaches_no_statement_and_changes_no_table(filled):
    database, executed = filled
    before = tables(database)
    assert len(list_snippets(database, TrajectoryFacets(words="nine"))) == 1
    executed.clear()
    for form in FORMS:
        choice = form.replace("\0", "")  # chosen from lists, never typed
        with suppress(SearchError):
            assert list_runs(database, RunFilter(words=form)) == [] or form in {'"', "\0", "run-1\0"}
            count_runs(database, RunFilter(words=form, statuses=(choice,), kinds=(choice,)))
        assert get_run(database, form) is None
        assert list_snippets(database, TrajectoryFacets(verdict=choice)) == []
        for facets in (TrajectoryFacets(words=form), TrajectoryFacets(verdict=choice), TrajectoryFacets(run_id=form)):
            assert list_snippets(database, facets) == []
        with database.read() as connection:
            newest_matching(connection, form, None, before=None, limit=9)
    statements = set(executed)
    leaked = [form for form in FORMS if len(form) > 8 and any(form in statement for statement in statements)]
    assert leaked == []
    forbidden = ("DROP ", "ATTACH ", "PG_SLEEP", "PG_SHADOW", "SQLITE_MASTER")
    assert [one for one in statements if any(word in one.upper() for word in forbidden)] == []
    assert tables(database) == before


def test_commands_for_a_cluster_hold_no_word_that_a_shell_would_obey():
    for form in (form for form in FORMS if "\0" not in form):
        command = ["sh", "-c", shell_command("printf", "%s", form)]
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == form
