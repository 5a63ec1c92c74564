"""A real PostgreSQL server for tests: own data folder, own Unix socket, gone when the tests end."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.tools import require_tool

_UNPRIVILEGED_USER = "postgres"
_SETTINGS = "-c listen_addresses='' -c fsync=off -c full_page_writes=off -c max_connections=40"


@contextmanager
def running_server() -> Iterator[str]:
    """Yield the URL of a new server's database `postgres`; without PostgreSQL the test is skipped, in CI it fails."""
    initdb, pg_ctl = require_tool("initdb"), require_tool("pg_ctl")
    # A short path: the name of a Unix socket holds about 100 bytes.
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    user = _server_user()
    if user is not None:
        os.chown(folder, user.pw_uid, user.pw_gid)
    data, log = folder / "data", folder / "log"
    start = [str(pg_ctl), "-D", str(data), "-w", "-l", str(log), "-o", f"-k {folder} {_SETTINGS}", "start"]
    try:
        _run([str(initdb), "-D", str(data), "-U", "tester", "--auth=trust", "--encoding=UTF8", "--no-sync"], user)
        _run(start, user)
        try:
            yield f"postgresql://tester@/postgres?host={folder}"
        finally:
            _run([str(pg_ctl), "-D", str(data), "-m", "immediate", "stop"], user)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _server_user() -> pwd.struct_passwd | None:
    """Return whom to become to run the server, which refuses to run as root."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(_UNPRIVILEGED_USER)
    except KeyError:
        return pwd.getpwnam("nobody")


def _run(command: list[str], user: pwd.struct_passwd | None) -> None:
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
            user=user.pw_uid if user else None,
            group=user.pw_gid if user else None,
            extra_groups=[] if user else None,
        )
        output.seek(0)
        said = output.read().decode(errors="replace")
    assert finished.returncode == 0, f"{command[0]} failed: {said}"
