"""A folder on a file system that never answers, as one on a network does whose server is gone."""

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

_DETACHED = 2
"""MNT_DETACH: nobody needs to have left."""


@contextlib.contextmanager
def hanging(folder: Path) -> Iterator[None]:
    """Let every call on a folder wait; without the right to mount, the test is skipped.

    It is a FUSE mount whose requests nobody reads. When it ends, what waits gets an error and the folder is back.
    """
    system = ctypes.CDLL(None, use_errno=True)
    try:
        device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        pytest.skip(f"A file system that hangs cannot be mounted here: {error.strerror}")
    options = f"fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()},allow_other"
    try:
        if system.mount(b"hanging", os.fsencode(folder), b"fuse", 0, options.encode()) != 0:
            pytest.skip(f"A file system that hangs cannot be mounted here: {os.strerror(ctypes.get_errno())}")
        try:
            yield
        finally:
            system.umount2(os.fsencode(folder), _DETACHED)
    finally:
        os.close(device)
