"""Programs that tests drive: where they are, and what it means when they are missing."""

import os
import shutil
import socket
from pathlib import Path

import pytest

CANDIDATES = {
    "chromium": ("chromium", "chromium-browser", "google-chrome"),
}
POSTGRESQL_HOMES = Path("/usr/lib/postgresql")


def find_tool(name: str) -> Path | None:
    """Return where the program `name` is, or None; Debian keeps PostgreSQL's server programs off PATH."""
    for candidate in CANDIDATES.get(name, (name,)):
        if found := shutil.which(candidate):
            return Path(found)
    homes = sorted(POSTGRESQL_HOMES.glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3]))
    return homes[-1] if homes else None


def require_tool(name: str) -> Path:
    """Return where the program `name` is; without it the test is skipped, or fails where the variable CI is set."""
    found = find_tool(name)
    if found is None:
        report_missing(f"{name} is not installed; `make tools` installs it on Debian.")
    assert found is not None
    return found


def report_missing(reason: str) -> None:
    """Skip the test for `reason`, or fail it in CI, where everything must be there."""
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def free_port() -> int:
    """Return a port of the loopback device that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
