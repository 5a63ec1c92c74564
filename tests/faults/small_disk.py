"""A file system of a few megabytes that can be filled to the last byte or inode and emptied again."""

import contextlib
import shutil
import subprocess

import pytest

FILLER = ".filler"
INODES = ".inodes"
NUM_INODES = 1_500


class SmallDisk:
    """A mounted file system; what tests keep on it lies in `path`."""

    def __init__(self, path):
        self.path = path

    def fill(self):
        with (self.path / FILLER).open("ab", buffering=0) as file:
            for size in (1 << 16, 1 << 12, 1):
                with contextlib.suppress(OSError):
                    while file.write(b"\xff" * size):
                        pass

    def use_inodes(self):
        folder = self.path / INODES
        folder.mkdir()
        with contextlib.suppress(OSError):
            for number in range(NUM_INODES):
                (folder / str(number)).touch()

    def free(self):
        (self.path / FILLER).unlink(missing_ok=True)
        shutil.rmtree(self.path / INODES, ignore_errors=True)


@contextlib.contextmanager
def mounted(path, size="16m"):
    """Give a file system of `size` and few inodes at a folder; without the right to mount one the test is skipped."""
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size},nr_inodes={NUM_INODES}", "tmpfs", str(path)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        reason = done.stderr.strip()
    except OSError as error:
        reason = str(error)
    if reason:
        pytest.skip(f"A full disk is made of a small file system, which cannot be mounted here: {reason}")
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True, stdin=subprocess.DEVNULL)
