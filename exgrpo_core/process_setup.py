"""How each program of this project begins: who may read its files, its user's name and home, and its log."""

import contextlib
import getpass
import logging
import os
import stat
import sys
import tempfile
import time


def keep_private() -> None:
    """Let every file and folder that this process and its children make belong to its user alone (0600 and 0700)."""
    os.umask(0o077)


def settle_user() -> None:
    """Give a user without a name, or without a home that can be written, both: in containers libraries ask for them."""
    with contextlib.suppress(OSError):
        _settle_home()
    try:
        getpass.getuser()
    except (KeyError, OSError):
        os.environ["USER"] = f"user{os.getuid()}"


def log_in_utc() -> None:
    """Let this process log to stderr, each line with its time in UTC, as pages show times."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    formatter = logging.Formatter("%(asctime)s.%(msecs)03d UTC %(levelname)s %(message)s", "%Y-%m-%d %H:%M:%S")
    formatter.converter = time.gmtime
    for handler in logging.getLogger().handlers:
        handler.setFormatter(formatter)


def _settle_home() -> None:
    home = os.path.expanduser("~")
    if os.path.isdir(os.path.join(home, ".cache")) or os.access(home, os.W_OK):
        return
    folder = os.path.join(tempfile.gettempdir(), f"exgrpo-home-{os.getuid()}")
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder)
    found = os.lstat(folder)
    is_own = found.st_uid == os.getuid() and stat.S_ISDIR(found.st_mode)
    os.environ["HOME"] = folder if is_own else tempfile.mkdtemp()
