"""The cache of views: a runs root for each set of paths that was opened, and copies of rollouts at addresses."""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from itertools import count
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from exgrpo.jobs.runs.directory import LINKS_FILE, WORKBENCH_FOLDER, list_run_directories
from exgrpo.jobs.runs.rollout_formats.formats import MissingPackageError, UnknownRolloutsError
from exgrpo_core.durable_files import explain
from exgrpo_core.errors import UserError, first_line
from exgrpo_core.recording.attempt_gate import is_locked

MAX_CACHE_BYTES = 10 << 30
"""Views that are not open are removed, those opened longest ago first, until the others need less."""
_VIEW_LOCK = Path(WORKBENCH_FOLDER) / "workbench.lock"


class CacheError(UserError):
    """The cache cannot be written; one sentence says why."""


def cache_folder() -> Path:
    """Return the folder of all views, by the XDG base directory specification."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "exgrpo" / "views"


def open_view_root(paths: Sequence[Path], format_text: str = "") -> Path:
    """Return the runs root of these paths, read by this format of the user's; older views are removed for space.

    Raises:
        CacheError: It cannot be written.
    """
    key = json.dumps([version("exgrpo-workbench"), sorted(map(str, paths)), format_text])
    root = cache_folder() / hashlib.sha256(key.encode()).hexdigest()[:16]
    try:
        (root / WORKBENCH_FOLDER).mkdir(parents=True, exist_ok=True)
        (root / WORKBENCH_FOLDER / LINKS_FILE).touch()
        os.utime(root)
        prune(root)
    except OSError as error:
        raise CacheError(f"{root}: {explain(error)}; XDG_CACHE_HOME names another cache.") from None
    return root


def prune(kept: Path, max_bytes: int = MAX_CACHE_BYTES) -> None:
    """Remove the views that were opened longest ago until the rest needs less; an open one stays, as does `kept`."""
    roots = sorted(kept.parent.iterdir(), key=lambda root: root.stat().st_mtime, reverse=True)
    total = 0
    for root in roots:
        total += sum(file.stat().st_size for file in _plain_files(root))
        if total > max_bytes and root != kept and not is_locked(root / _VIEW_LOCK):
            shutil.rmtree(root, ignore_errors=True)


def _plain_files(root: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(root):
        yield from (path for name in names if not (path := Path(folder, name)).is_symlink())


def link_runs(root: Path, runs: Sequence[Path]) -> None:
    """Show run folders that lie elsewhere in a view's root, in place; the second of one name is `name-2`."""
    for run in runs:
        links = (root / (run.name if number == 1 else f"{run.name}-{number}") for number in count(1))
        link = next(link for link in links if not link.is_symlink() or link.readlink() == run)
        if not link.is_symlink():
            link.symlink_to(run, target_is_directory=True)


def runs_at(path: Path) -> list[Path]:
    """Return the run folders that a path is or, as a runs root, holds."""
    if not path.is_dir():
        return []
    return [path] if (path / "run.json").exists() else [run.path for run in list_run_directories(path)]


_PACKAGES = {"hf": "huggingface-hub", "s3": "s3fs"}
_ADDRESS = re.compile(r"([a-z][a-z0-9+]*)://.+")


def is_address(text: str) -> bool:
    """Whether a text is an address instead of a path."""
    return _ADDRESS.fullmatch(text) is not None


def copy_rollouts(address: str, folder: Path | None = None) -> Path:
    """Return a copy in a folder, by default one of the cache, of the file or folder at an address.

    It takes the place of an earlier copy once it is whole.

    Raises:
        MissingPackageError: The package that reads such addresses is not installed.
        UnknownRolloutsError: The address has another scheme or cannot be read.
    """
    scheme = address.partition("://")[0]
    if scheme not in _PACKAGES:
        raise UnknownRolloutsError(f"{address}: expected a path, or an address with hf:// or s3://.")
    try:
        import fsspec

        files, place = fsspec.url_to_fs(address)
    except ImportError:
        needs = f"fsspec {_PACKAGES[scheme]}"
        raise MissingPackageError(f"{address}: needs packages that read it; run `pip install {needs}`.") from None
    except (OSError, ValueError) as error:
        raise UnknownRolloutsError(f"{address}: {first_line(error)}") from None
    folder = folder or cache_folder().with_name("copies") / hashlib.sha256(address.encode()).hexdigest()[:16]
    inner = PurePosixPath(*PurePosixPath(place).parts[-2:])
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}.") as new:
            found = {name: Path(new) / inner / PurePosixPath(name).relative_to(place) for name in files.find(place)}
            if not found:
                raise FileNotFoundError("there are no files")
            for name, path in found.items():
                if ".." in path.parts:
                    raise ValueError(f"{name} leads out of the folder")
                path.parent.mkdir(parents=True, exist_ok=True)
                files.get_file(name, str(path))
            shutil.rmtree(folder, ignore_errors=True)
            Path(new).rename(folder)
    except Exception as error:  # noqa: BLE001 - each file system raises its own
        why = first_line(error) or type(error).__name__
        raise UnknownRolloutsError(
            f"{address}: cannot be read ({why}); check the address and your access to it."
        ) from None
    return folder / inner
