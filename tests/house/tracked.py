"""The files that are in the repository, and the Python of its packages."""

import subprocess
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGES = ("app", "jobs", "db", "exgrpo_core")
SOURCE_FOLDERS = (*PACKAGES, "bench")


@cache
def tracked_files() -> tuple[Path, ...]:
    """Return every file that git tracks and the checkout has, relative to its root."""
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=REPOSITORY, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL
    ).stdout
    paths = (Path(name) for name in listing.split("\0") if name)
    return tuple(path for path in paths if (REPOSITORY / path).is_file())


def source_files() -> list[Path]:
    """Return the tracked Python files of the packages and of `bench`, revision files of the database left out."""
    return [
        path
        for path in tracked_files()
        if path.suffix == ".py" and path.parts[0] in SOURCE_FOLDERS and "versions" not in path.parts
    ]


def read(path: Path) -> str:
    """Return the text of a tracked file."""
    return (REPOSITORY / path).read_text(encoding="utf-8")
