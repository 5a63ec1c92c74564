"""Supervisor and pages as two children of one process, which ends both when it ends; the command that starts it."""

import contextlib
import errno
import html
import itertools
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import webbrowser
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from exgrpo.db import DATABASE_URL_VARIABLE, SQLITE_FILE
from exgrpo.db.rows.display_names import utc_time
from exgrpo.jobs.cli.options import DEFAULT_PORT, DEFAULT_RUNS_ROOT, DatabaseUrl, RunsRoot, print_status
from exgrpo.jobs.execution.supervisor.instance import LOG_FILE, supervisor_command
from exgrpo.jobs.machine.engine_environments import PROJECT_ROOT
from exgrpo.jobs.runs.control import DEFAULT_GRACE_SECONDS
from exgrpo.jobs.runs.directory import WORKBENCH_FOLDER
from exgrpo.jobs.runs.launchers.end_with_starter import STARTER_VARIABLE
from exgrpo.jobs.runs.launchers.local import TOKEN_VARIABLE, start_detached
from exgrpo.jobs.runs.processes import signal_name
from exgrpo.jobs.runs.state import read_supervisor
from exgrpo_core.bounded_json import read_json
from exgrpo_core.durable_files import explain, write_whole
from exgrpo_core.errors import UserError
from exgrpo_core.recording.attempt_gate import FileLock, is_locked

LOCK_FILE = "workbench.lock"
RECORD_FILE = "workbench.json"
OPEN_FILE = ".open.html"
"""Leads the browser to the link: its token in the browser's command line would be seen by all users (`ps`)."""
END_SECONDS = 10.0
_TIMEOUT_SECONDS = 0.2
_IDLE_SECONDS = 0.5
_LIST_SECONDS = 10.0
"""Between two lists of the runs of a root that others write."""
_POLL_SECONDS = 0.2
_RESTART_SECONDS = 2.0
_QUIET_SECONDS = 1.0
"""Only a supervisor that takes longer to end is reported as waited for."""


class WorkbenchRunningError(UserError):
    """Another workbench serves this runs root already; one sentence says which and where."""


@dataclass(frozen=True, slots=True)
class WorkbenchRecord:
    """The workbench that serves a runs root; it has no address until its pages answer."""

    pid: int
    since: datetime
    address: str


class WorkbenchInstance:
    """The lock of one runs root, held until `release` or until the process ends."""

    def __init__(self, runs_root: Path) -> None:
        """Take the lock.

        Raises:
            WorkbenchRunningError: Another workbench holds it.
        """
        folder = runs_root / WORKBENCH_FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / RECORD_FILE
        self._lock = FileLock(folder / LOCK_FILE)
        self._since = datetime.now(UTC)
        if not self._lock.acquire(timeout_seconds=_TIMEOUT_SECONDS):
            raise WorkbenchRunningError(_describe(runs_root, _read(self._path)))
        self._write("")

    def record_link(self, link: str) -> None:
        """Record the address of the pages without the token in `link`."""
        self._write(link.partition("?")[0])

    def release(self) -> None:
        """Release the lock; a second call changes nothing."""
        self._path.with_name(OPEN_FILE).unlink(missing_ok=True)
        self._lock.release()

    def open_browser(self, link: str) -> None:
        """Open `link` in the browser, by way of a file that only this user may read."""
        page = self._path.with_name(OPEN_FILE)
        write_whole(page, f'<meta http-equiv="refresh" content="0;url={html.escape(link)}">', is_durable=False)
        webbrowser.open(page.resolve().as_uri())

    def _write(self, address: str) -> None:
        content = {"pid": os.getpid(), "since": self._since.isoformat(timespec="seconds"), "address": address}
        write_whole(self._path, json.dumps(content), is_durable=False)


def read_workbench(runs_root: Path) -> WorkbenchRecord | None:
    """Return the workbench that serves a runs root, None when none does."""
    folder = runs_root / WORKBENCH_FOLDER
    return _read(folder / RECORD_FILE) if is_locked(folder / LOCK_FILE) else None


def _read(path: Path) -> WorkbenchRecord | None:
    try:
        content = read_json(path)
        since = datetime.fromisoformat(content["since"])
        return WorkbenchRecord(int(content["pid"]), since, str(content["address"]))
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None


def _describe(runs_root: Path, record: WorkbenchRecord | None) -> str:
    advice = "use the link that it printed, or end it first (Ctrl-C where it runs)"
    if record is None:
        return f"A workbench serves {runs_root} already; {advice}."
    address = f" at {record.address}" if record.address else ""
    since = utc_time(record.since)
    return f"A workbench serves {runs_root} already{address} (pid {record.pid}, since {since}); {advice}."


logger = logging.getLogger(__name__)

_REFUSED = 2
"""Exit code of pages that said why they do not start."""
_READ_ONLY = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
_BOUND = [sys.executable, "-P", "-m", "exgrpo.jobs.runs.launchers.end_with_starter"]


class Workbench:
    """The supervisor and the pages of one runs root; `page_options` are of the pages' server."""

    def __init__(
        self,
        runs_root: Path,
        database_url: str | None,
        supervisor: Sequence[str] = (),
        page_options: Sequence[str] = ("--host", "127.0.0.1", "--port", str(DEFAULT_PORT)),
        stops_runs: bool = False,
    ) -> None:
        self._runs_root = runs_root.resolve()
        self._folder = self._runs_root / WORKBENCH_FOLDER
        self._supervisor = supervisor
        self._page_options = page_options
        self._stops_runs = stops_runs
        self._environment = {STARTER_VARIABLE: str(os.getpid())}
        if database_url is not None:
            self._environment[DATABASE_URL_VARIABLE] = database_url
        self._num_signals = 0

    def serve(self, opens_browser: bool) -> int:
        """Serve until SIGINT or SIGTERM, or until the pages end, and return the exit code.

        If a supervisor runs already, it continues, and the workbench's supervisor waits until it ends. One that stops
        runs is waited for until a second signal.

        Raises:
            WorkbenchRunningError: Another workbench serves this runs root.
        """
        previous = {number: signal.signal(number, self._request_end) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            try:
                instance = WorkbenchInstance(self._runs_root)
            except OSError as error:
                why = explain(error)
                if error.errno not in _READ_ONLY:
                    text = f"{self._runs_root}: cannot be made or written ({why}); name another with --runs-root."
                    raise UserError(text) from None
                logger.warning("%s: %s. Pages show it; nothing can be started or changed.", self._runs_root, why)
                with tempfile.TemporaryDirectory(prefix="exgrpo-") as folder:
                    return self._show(f"sqlite:///{folder}/index.db")
            return self._serve(instance, opens_browser)
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def view(self, opens_browser: bool, reading: Generator[bool]) -> int:
        """Serve pages that only read, without a supervisor, until a signal comes, and return the exit code.

        `reading` writes runs: each item is whether there is more. The next one is asked for when the database has what
        was written before, so that pages show the beginning of a large source at once; none before the lock is held.

        Raises:
            WorkbenchRunningError: Pages of this runs root are served already.
        """
        previous = {number: signal.signal(number, self._request_end) for number in (signal.SIGINT, signal.SIGTERM)}
        instance = WorkbenchInstance(self._runs_root)
        try:
            url = f"sqlite:///{self._runs_root / SQLITE_FILE}"
            with contextlib.closing(reading):
                return self._show(url, instance, opens_browser, reading, _IDLE_SECONDS)
        finally:
            instance.release()
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _show(
        self,
        database_url: str,
        instance: WorkbenchInstance | None = None,
        opens_browser: bool = False,
        reading: Iterator[bool] = itertools.repeat(False),  # noqa: B008 - has no state
        list_seconds: float = _LIST_SECONDS,
    ) -> int:
        """Serve the pages of a root by a database that follows its files."""
        self._environment[DATABASE_URL_VARIABLE] = database_url
        pages = self._start_pages()
        threading.Thread(target=_forward_output, args=(pages, opens_browser, instance), daemon=True).start()
        try:
            # Loaded while the pages start, which takes longer.
            from exgrpo.jobs.execution.supervisor.indexing import Indexer

            index = Indexer(database_url, self._runs_root, list_seconds)
            with contextlib.closing(index):
                while not self._num_signals and pages.poll() is None:
                    has_more = not index.is_behind and next(reading)
                    index.poll()
                    if not (has_more or index.is_behind) or not index.is_reachable:
                        time.sleep(_IDLE_SECONDS)
        finally:
            _end([pages])
        return 0 if self._num_signals else pages.returncode

    def _serve(self, instance: WorkbenchInstance, opens_browser: bool) -> int:
        self._warn_of_supervisor()
        supervisor = self._start_supervisor()
        others = list["subprocess.Popen[bytes]"]()
        try:
            pages = self._start_pages()
            others.append(pages)
            threading.Thread(target=_forward_output, args=(pages, opens_browser, instance), daemon=True).start()
            while not self._num_signals and pages.poll() is None:
                if supervisor.poll() is not None:
                    logger.warning("The supervisor ended (exit code %s); starting it again.", supervisor.returncode)
                    time.sleep(_RESTART_SECONDS)
                    supervisor = self._start_supervisor()
                time.sleep(_POLL_SECONDS)
            if not self._num_signals and pages.returncode not in {0, _REFUSED}:
                logger.error("%s", _why_pages_ended(pages.returncode))
        finally:
            supervisor.terminate()
            _end(others if self._stops_runs else [*others, supervisor])
            self._wait_for_runs(supervisor)
            instance.release()
        return 0 if self._num_signals else pages.returncode

    def _wait_for_runs(self, supervisor: "subprocess.Popen[bytes]") -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            supervisor.wait(_QUIET_SECONDS)
            return
        num_signals = self._num_signals
        print_status(
            "Waiting for runs to stop with a checkpoint; Ctrl-C again leaves them running: each stops by itself after "
            "its step, and the next start resumes it."
        )
        while supervisor.poll() is None and self._num_signals == num_signals:
            time.sleep(_POLL_SECONDS)
        supervisor.kill()
        supervisor.wait()

    def _warn_of_supervisor(self) -> None:
        supervisor = read_supervisor(self._runs_root)
        if supervisor is not None:
            logger.warning(
                "A supervisor is already running for %s (pid %d, last heartbeat %s); it continues, and this "
                "workbench's supervisor starts when it ends.",
                self._runs_root,
                supervisor.pid,
                utc_time(supervisor.at),
            )

    def _request_end(self, _number: int, _frame: object) -> None:
        self._num_signals += 1

    def _start_supervisor(self) -> "subprocess.Popen[bytes]":
        command = [*_BOUND, *self._supervisor, "--wait"]
        with (self._folder / LOG_FILE).open("ab") as log:
            return start_detached(command, log.fileno(), self._folder, self._environment)

    def _start_pages(self) -> "subprocess.Popen[bytes]":
        command = [*_BOUND, sys.executable, "-P", "-m", "exgrpo.app.serving", "--runs-root", str(self._runs_root)]
        command += self._page_options
        environment = dict(os.environ) | self._environment | {"PYTHONPATH": str(PROJECT_ROOT)}
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, start_new_session=True)


def _why_pages_ended(code: int) -> str:
    how = f"was ended by {signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
    cause = "; the system sends that when memory runs out" if code == -signal.SIGKILL else ""
    return f"The server of the pages {how}{cause}. Runs continue; start the workbench again with: exgrpo up"


def _forward_output(pages: "subprocess.Popen[bytes]", opens_browser: bool, instance: WorkbenchInstance | None) -> None:
    """Print the output of the pages' server; record its link and open it in the browser."""
    assert pages.stdout is not None
    for line in pages.stdout:
        text = line.decode(errors="replace").rstrip()
        is_link = text.startswith("http")
        # Who gave the token knows it, and the log of a service is read by others.
        shown = text.partition("?")[0] if is_link and os.environ.get(TOKEN_VARIABLE) else text
        print(shown, flush=True)  # noqa: T201 - the command's result
        if not is_link or instance is None:
            continue
        with contextlib.suppress(OSError):
            instance.record_link(text)
        if opens_browser:
            opens_browser = False
            with contextlib.suppress(OSError):  # the disk is full
                instance.open_browser(text)
            print_status(f"If the browser shows nothing, open {shown}")


def _end(processes: "list[subprocess.Popen[bytes]]") -> None:
    for process in processes:
        if process.poll() is None:
            process.terminate()
    give_up_at = time.monotonic() + END_SECONDS
    for process in processes:
        try:
            process.wait(timeout=max(0.1, give_up_at - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def up(  # noqa: PLR0913, PLR0917 - typer reads a command's options from its arguments
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    database_url: DatabaseUrl = None,
    port: Annotated[
        int, typer.Option(help="Port of the pages. 0 chooses a free port.", min=0, max=65535)
    ] = DEFAULT_PORT,
    opens_browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the browser.")] = True,
    max_running: Annotated[int, typer.Option(help="How many runs can run at the same time.", min=1)] = 1,
    stop_grace: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=0.0,
            help="How long a run can take to stop before it is killed. A run with long steps gets more time: twice its "
            "longest recent step, evaluation and checkpoint.",
        ),
    ] = DEFAULT_GRACE_SECONDS,
    stops_runs: Annotated[
        bool,
        typer.Option(
            "--stop-runs",
            envvar="EXGRPO_STOP_RUNS",
            help="When the workbench ends, stop all runs. The next start resumes them.",
        ),
    ] = False,
    remote_host: Annotated[
        str | None,
        typer.Option(
            "--allow-remote",
            metavar="ADDRESS",
            help="Accept connections from other machines. Use it only behind a TLS proxy.",
        ),
    ] = None,
    allowed_hosts: Annotated[
        list[str] | None,
        typer.Option("--allow-host", metavar="NAME", help="Also answer under this host name, the name of a proxy."),
    ] = None,
    sign_in: Annotated[
        Path | None,
        typer.Option(
            "--sign-in",
            metavar="FILE",
            help="File with the OpenID provider and the roles: people sign in instead of using a link.",
        ),
    ] = None,
) -> None:
    """Start the workbench. Ctrl-C ends pages and supervisor, and runs continue."""
    options = ["--port", str(port), "--host", remote_host or "127.0.0.1"]
    options += ["--allow-remote"] if remote_host is not None else []
    options += ["--sign-in", str(sign_in.absolute())] if sign_in is not None else []
    options += [option for name in allowed_hosts or () for option in ("--allow-host", name)]
    supervisor = [*supervisor_command(runs_root, max_running, stop_grace), *(["--stop-runs"] if stops_runs else [])]
    raise typer.Exit(Workbench(runs_root, database_url, supervisor, options, stops_runs).serve(opens_browser))
