"""Programs that tests drive, what it means when they are missing, and ports for them."""

import errno
import os
import random
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

CANDIDATES = {"chromium": ("chromium", "chromium-browser", "google-chrome")}
POSTGRESQL_HOMES = Path("/usr/lib/postgresql")


def find_tool(name):
    """Return where the program `name` is, or None; Debian keeps programs of servers off PATH."""
    for candidate in CANDIDATES.get(name, (name,)):
        if path := shutil.which(candidate) or shutil.which(candidate, path="/usr/sbin:/sbin"):
            return Path(path)
    homes = sorted(POSTGRESQL_HOMES.glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3]))
    return homes[-1] if homes else None


def require_tool(name):
    """Return where the program `name` is; without it the test is skipped, or fails where the variable CI is set."""
    path = find_tool(name)
    if path is None:
        report_missing(f"{name} is not installed; `make tools` installs it on Debian.")
    assert path is not None
    return path


def report_missing(reason):
    """Skip the test for `reason`, or fail it in CI, where everything must be there."""
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def free_port():
    return free_ports(1)[0]


def free_ports(number):
    """Return different ports of the loopback device that nobody listens on.

    They are from 20,000 to 29,999: Ray's workers take lower ones, and Linux gives outgoing connections those from
    32,768 on, so that one could be taken before a server starts, or starts again.
    """
    chance, ports = random.SystemRandom(), set[int]()
    while len(ports) < number:
        port = chance.randrange(20_000, 30_000)
        try:
            with socket.create_server(("127.0.0.1", port)):
                ports.add(port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    return list(ports)


def as_nameless_user(command):
    """Return what a command prints as a user without a name; where no user namespace can be made the test skips."""
    space = ["unshare", "--user", "--map-user=12345", "--map-group=12345"]
    if subprocess.run([*space, "true"], capture_output=True, check=False).returncode:
        pytest.skip("unshare cannot make a user namespace here")
    return subprocess.run([*space, *command], capture_output=True, text=True, check=True).stdout
