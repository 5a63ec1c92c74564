"""Names, homes and log lines of the programs, each in a process of its own."""

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.tools import as_nameless_user


@pytest.mark.parametrize("home", [None, "/nonexistent", "/proc"])
def test_a_user_without_a_name_or_a_home_to_write_gets_both(tmp_path, home):
    """Containers run as `--user 12345`: libraries that ask for a name or a home raise errors there."""
    named = [] if home is None else [f"HOME={home}"]
    asks = "import getpass, os, pathlib; from exgrpo_core.process_setup import settle_user; settle_user(); "
    asks += "print(getpass.getuser(), pathlib.Path.home(), os.access(pathlib.Path.home(), os.W_OK))"
    environment = ["env", "-i", f"TMPDIR={tmp_path}", f"PYTHONPATH={Path.cwd()}", *named]
    name, found, is_writable = as_nameless_user([*environment, sys.executable, "-c", asks]).split()
    assert (name, Path(found).parent, is_writable) == ("user12345", tmp_path, "True")


def test_lines_of_logs_say_their_time_in_utc():
    logs = "import logging; from exgrpo_core.process_setup import log_in_utc; log_in_utc(); logging.warning('x')"
    environment = os.environ | {"TZ": "America/New_York"}
    done = subprocess.run([sys.executable, "-c", logs], capture_output=True, text=True, env=environment, check=True)
    at = datetime.strptime(done.stderr[:19], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    assert abs(datetime.now(UTC) - at) < timedelta(minutes=5)
    assert done.stderr[23:] == " UTC WARNING x\n"
