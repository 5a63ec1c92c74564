"""Serves the workbench: Streamlit behind the gate, on one address, with a link that carries the token."""

import argparse
import ctypes
import ipaddress
import logging
import os
import secrets
import socket
import sys
from pathlib import Path

import streamlit
import streamlit as st
import uvicorn
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware

from exgrpo.app import settings, theme
from exgrpo.app.formats import with_code
from exgrpo.app.queries.answers import UnavailableError
from exgrpo.app.serving import shell, streamlit_changes
from exgrpo.app.serving.gate import Gate, GateSettings
from exgrpo.app.serving.sign_in import read_sign_in
from exgrpo.db import DATABASE_URL_VARIABLE
from exgrpo.jobs.machine.engine_environments import describe_missing_package
from exgrpo_core.errors import UserError
from exgrpo_core.process_setup import keep_private, settle_user

LOG = "streamlit.error_util"
"""The log to which Streamlit writes the traceback of a failed page, before it asks what to show."""


def is_fault(record: logging.LogRecord) -> bool:
    """Return whether a record of `LOG` needs a traceback; an unavailable database does not."""
    return not (record.exc_info and isinstance(record.exc_info[1], UnavailableError))


def show_failure(error: Exception) -> bool:
    """Show one sentence instead of a traceback. True tells Streamlit that the error is handled.

    Several parts of a page may fail in the same run, so nothing has a key of its own.
    """
    detail = str(error).strip().splitlines()
    if isinstance(error, ModuleNotFoundError) and error.name:
        detail = [describe_missing_package(error.name)]
    sentence = detail[0] if detail else type(error).__name__
    is_away = isinstance(error, UnavailableError)
    with st.container(border=True, gap="xxsmall"):
        st.markdown(f":red[:material/error:] **{'Database unavailable' if is_away else 'This page failed'}**")
        st.markdown(with_code(sentence if is_away else f"{sentence} (The server's log has the details.)"))
        st.button("Try again", icon=":material/refresh:", key=f"failure-retry-{id(error)}")
    return True


MAIN_SCRIPT = Path(__file__).parents[1] / "main.py"
_MAX_MEMORY_POOLS = 2
_M_ARENA_MAX = -8
DEFAULT_PORT = 8501
MAX_HEADER_BYTES = 1 << 16
"""More than a browser sends; all headers of a request together."""
PING_TIMEOUT_SECONDS = 120.0
"""A browser that is busy for so long without an answer counts as gone; the default of 20 s cuts busy ones off."""
TOKEN_VARIABLE = "EXGRPO_TOKEN"
MIN_TOKEN_LENGTH = 16


class ServerError(UserError):
    """The workbench cannot be served."""


class _AnnouncingServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, link: str) -> None:
        super().__init__(config)
        self._link = link

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            print(self._link, flush=True)  # noqa: T201 - the link is what the launcher waits for


def _serve(options: argparse.Namespace) -> None:
    """Serve until a signal comes; prints `http://HOST:PORT/?token=...` as soon as the server answers.

    Where people sign in, the address is printed without a token.

    Raises:
        ServerError: The host is not loopback, the port is taken, the token is too short or the folder is missing.
        SignInError: The sign-in file cannot be used.
    """
    host, runs_root = options.host, options.runs_root.absolute()
    if not runs_root.is_dir():
        raise ServerError(f"runs root {runs_root}: expected a folder; create it or give another one.")
    ended_file = runs_root / "workbench" / "signed-out"
    sign_in = None if options.sign_in is None else read_sign_in(options.sign_in, ended_file)
    check_host(host, options.allow_remote)
    for name in options.allow_host:
        if "/" in name or name.count(":") == 1:  # an IPv6 address has more
            raise ServerError(
                f"--allow-host {name}: expected only a name, without a port, such as workbench.example.org."
            )
    token = os.environ.get(TOKEN_VARIABLE, secrets.token_urlsafe(32))
    if len(token) < MIN_TOKEN_LENGTH:
        raise ServerError(f"{TOKEN_VARIABLE}: expected at least {MIN_TOKEN_LENGTH} characters, got {len(token)}.")
    listener = _listen(host, options.port)
    port = listener.getsockname()[1]
    database_url = options.database_url or os.environ.get(DATABASE_URL_VARIABLE)
    roles, shared_token = (None, token) if sign_in is None else (sign_in.roles, None)
    settings.configure(settings.AppSettings(runs_root, database_url, roles, options.view, shared_token))
    secret_files = [str(sign_in.path)] if sign_in else []
    streamlit_changes.load_options(theme.streamlit_options(host, port) | {"secrets.files": secret_files})
    further = [sign_in.host] if sign_in else []
    gate = GateSettings(
        token=token,
        port=port,
        allowed_hosts=settings.LOOPBACK_NAMES | {name.lower() for name in [host, *options.allow_host, *further]},
        inline_script_hashes=shell.inline_script_hashes(),
        sign_in=sign_in,
    )
    application = streamlit.App(
        MAIN_SCRIPT,
        routes=shell.routes(),
        middleware=[
            Middleware(Gate, settings=gate),
            Middleware(GZipMiddleware, compresslevel=shell.COMPRESSION),
        ],
        on_script_error=show_failure,
    )
    config = uvicorn.Config(
        application,
        log_level="warning",
        access_log=False,
        server_header=False,
        http="h11",
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        ws="websockets-sansio",
        ws_ping_timeout=PING_TIMEOUT_SECONDS,
        timeout_graceful_shutdown=2,
    )
    url_host = f"[{host}]" if ":" in host else host
    query = f"?{settings.TOKEN_PARAMETER}={token}" if sign_in is None else ""
    _share_memory_pools()
    streamlit_changes.repair()
    logging.getLogger(LOG).addFilter(is_fault)
    _AnnouncingServer(config, f"http://{url_host}:{port}/{query}").run([listener])


def _share_memory_pools() -> None:
    """Make all threads share few memory pools of glibc.

    It has up to eight pools per core, and Streamlit runs each script in a separate thread: each pool grows to the
    largest script that used it, and never shrinks.
    """
    if (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        mallopt(_M_ARENA_MAX, _MAX_MEMORY_POOLS)


def check_host(host: str, allows_remote: bool) -> None:
    """Refuse addresses beyond this machine unless they are allowed explicitly.

    Raises:
        ServerError: `host` is no loopback address and `allows_remote` is not set.
    """
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = host == "localhost"
    if not is_loopback and not allows_remote:
        raise ServerError(
            f"host {host}: would open the workbench, which starts processes, to other machines; "
            "use 127.0.0.1 with an SSH tunnel, or pass --allow-remote."
        )


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise ServerError(f"host {host}: cannot be resolved ({error.strerror}); give an address.") from None
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise ServerError(f"port {port} on {host}: cannot be opened ({error.strerror}); give another --port.") from None
    listener.set_inheritable(False)
    return listener


def main(arguments: list[str] | None = None) -> int:
    """Run the server from a command line; the database URL and the token may come from the environment."""
    parser = argparse.ArgumentParser(prog="python -m exgrpo.app.serving", description="Serve the ExGRPO Workbench.")
    parser.add_argument("--runs-root", type=Path, required=True, help="folder that holds the run directories")
    parser.add_argument("--database-url", help=f"database; {DATABASE_URL_VARIABLE} keeps passwords out of `ps`")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="port to listen on; 0 means a free one")
    parser.add_argument("--allow-remote", action="store_true", help="allow an address beyond this machine")
    parser.add_argument("--allow-host", action="append", default=[], help="further Host name to answer under")
    parser.add_argument("--sign-in", type=Path, help="file with an OpenID provider and roles; see docs/deployment.md")
    parser.add_argument("--view", action="store_true", help="pages that only read")
    options = parser.parse_args(arguments)
    keep_private()
    settle_user()
    try:
        _serve(options)
    except UserError as error:
        print(error, file=sys.stderr)  # noqa: T201 - the one sentence a user sees
        return 2
    return 0
