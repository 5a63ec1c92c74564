"""A real PostgreSQL server for tests, and PgBouncer before it: own folders, own sockets, gone when the tests end."""

import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import create_engine, make_url

from tests.tools import require_tool

_NUMBERS = itertools.count(1)
_UNPRIVILEGED_USER = "postgres"
_SETTINGS = "-c listen_addresses='' -c fsync=off -c full_page_writes=off -c max_connections=40"


@dataclass(frozen=True)
class Server:
    """A server that can be stopped and started; its folder holds its data and its Unix socket."""

    folder: Path
    user: pwd.struct_passwd | None

    @property
    def url(self):
        return f"postgresql://tester@/postgres?host={self.folder}"

    def start(self):
        settings = f"-k {self.folder} {_SETTINGS}"
        self._control("-w", "-l", str(self.folder / "log"), "-o", settings, "start")

    def stop(self):
        self._control("-m", "immediate", "stop")

    def _control(self, *words):
        _run([str(require_tool("pg_ctl")), "-D", str(self.folder / "data"), *words], self.user)


@contextmanager
def running_server():
    """Yield the URL of a new server's database `postgres`; without PostgreSQL the test is skipped, in CI it fails."""
    with controlled_server() as server:
        yield server.url


@contextmanager
def controlled_server():
    """Yield a new server, which runs; without PostgreSQL the test is skipped, in CI it fails."""
    initdb = require_tool("initdb")
    require_tool("pg_ctl")
    # A short path: the name of a Unix socket holds about 100 bytes.
    server = Server(Path(tempfile.mkdtemp(prefix="pg-")), _server_user())
    if server.user is not None:
        os.chown(server.folder, server.user.pw_uid, server.user.pw_gid)
    data = str(server.folder / "data")
    try:
        _run([str(initdb), "-D", data, "-U", "tester", "--auth=trust", "--encoding=UTF8", "--no-sync"], server.user)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(server.folder, ignore_errors=True)


def create_postgres_database(server, template=None, options=""):
    """Return the URL of a new database of a server, which is empty or a copy of another one."""
    server_url = make_url(server)
    name = f"test_{next(_NUMBERS)}"
    engine = create_engine(server_url.set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        copied = f" TEMPLATE {make_url(template).database}" if template else ""
        connection.exec_driver_sql(f"CREATE DATABASE {name}{copied} {options}")
    engine.dispose()
    return server_url.set(database=name).render_as_string(hide_password=False)


@contextmanager
def pooled(url):
    program, user = require_tool("pgbouncer"), _server_user()
    folder = Path(tempfile.mkdtemp(prefix="pool-"))
    server = make_url(url)
    (folder / "pgbouncer.ini").write_text(
        f"[databases]\n* = host={server.query['host']} user={server.username}\n[pgbouncer]\nlisten_addr =\n"
        f"unix_socket_dir = {folder}\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 2\n"
    )
    if user is not None:
        os.chown(folder, user.pw_uid, user.pw_gid)
    command = [str(program), "-q", str(folder / "pgbouncer.ini")]
    with subprocess.Popen(command, cwd="/", stderr=subprocess.DEVNULL, **_identity(user)) as process:
        try:
            until = time.monotonic() + 10
            while not (folder / ".s.PGSQL.6432").exists():
                assert process.poll() is None
                assert time.monotonic() < until
                time.sleep(0.02)
            pooler = server.set(query={"host": str(folder), "port": "6432"})
            yield pooler.render_as_string(hide_password=False)
        finally:
            process.terminate()
    shutil.rmtree(folder)


def _server_user():
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(_UNPRIVILEGED_USER)
    except KeyError:
        return pwd.getpwnam("nobody")


def _identity(user):
    return {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def _run(command, user):
    # Output goes to a file: a server that inherits a pipe keeps it open for as long as it runs.
    with tempfile.TemporaryFile() as output:
        finished = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd="/",
            timeout=120,
            check=False,
            **_identity(user),
        )
        output.seek(0)
        printed = output.read().decode(errors="replace")
    assert finished.returncode == 0, f"{command[0]} failed: {printed}"
