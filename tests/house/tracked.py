"""The files that are in the repository or about to be, and the Python of its packages."""

import subprocess
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
LINKED = ("app", "jobs", "db")
"""Folders that are packages of `exgrpo`, by links."""
PACKAGES = (*LINKED, "exgrpo", "exgrpo_core")
SOURCE_FOLDERS = (*PACKAGES, "bench")


@cache
def tracked_files(repository=REPOSITORY):
    """Return every file of the checkout that git tracks, and new Python that is not ignored, relative to its root."""
    names = _list_files(repository) + _list_files(repository, "--others", "--exclude-standard", "*.py")
    return tuple(Path(name) for name in names if (repository / name).is_file())


def _list_files(repository, *options):
    listing = subprocess.run(
        ["git", "ls-files", "-z", *options],
        cwd=repository, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL,
    ).stdout  # fmt: skip
    return listing.split("\0")


def source_files():
    return [
        path
        for path in tracked_files()
        if path.suffix == ".py" and path.parts[0] in SOURCE_FOLDERS and "versions" not in path.parts
    ]


def read(path):
    return (REPOSITORY / path).read_text(encoding="utf-8")
