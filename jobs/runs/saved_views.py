"""Views of curves that users keep under a name: what the address says of them, in a file of the workbench's folder."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from exgrpo_core.bounded_json import read_json
from exgrpo_core.durable_files import write_whole
from jobs.runs.directory import WORKBENCH_FOLDER
from jobs.runs.file_lock import FileLock
from jobs.specs.train import NAME_PATTERN, SpecError

VIEWS_FILE = "views.json"
MAX_VIEWS = 100
_LOCK_SECONDS = 10.0


def list_views(runs_root: Path) -> dict[str, dict[str, str]]:
    """Return the parameters of the address by the view's name, sorted; none where the file cannot be read."""
    try:
        return _read(runs_root)
    except SpecError:
        return {}


def save_view(runs_root: Path, name: str, parameters: Mapping[str, str]) -> None:
    """Keep a view, in place of an older one of its name.

    Raises:
        SpecError: The name is no name of a run, there are too many, or the file cannot be read or written.
    """
    if NAME_PATTERN.fullmatch(name) is None:
        raise SpecError(f"name: expected letters, digits, spaces and . _ + @ -, at most 80, got {name[:90]!r}.")
    with _locked(runs_root):
        views = _read(runs_root)
        if len(views) >= MAX_VIEWS and name not in views:
            raise SpecError(f"views: {MAX_VIEWS} are kept already; delete one first.")
        write_whole(_path(runs_root), json.dumps(views | {name: dict(parameters)}, indent=1))


def delete_view(runs_root: Path, name: str) -> None:
    """Remove a view; one that is not there changes nothing.

    Raises:
        SpecError: The file cannot be read or written.
    """
    with _locked(runs_root):
        views = _read(runs_root)
        if views.pop(name, None) is not None:
            write_whole(_path(runs_root), json.dumps(views, indent=1))


def _read(runs_root: Path) -> dict[str, dict[str, str]]:
    path = _path(runs_root)
    try:
        content = read_json(path)
        return {name: {str(key): str(value) for key, value in view.items()} for name, view in sorted(content.items())}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError):
        raise SpecError(f"{path}: expected saved views as JSON; move the file away to start without views.") from None


@contextmanager
def _locked(runs_root: Path) -> Iterator[None]:
    """Keep other writers out between reading and writing."""
    path = _path(runs_root)
    lock = FileLock(path.with_suffix(".lock"))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not lock.acquire(_LOCK_SECONDS):
            raise SpecError(f"{path}: another process has kept it for {_LOCK_SECONDS:.0f} s; try again.")
        yield
    except OSError as error:
        raise SpecError(f"{path}: cannot be written ({error.strerror}); choose another runs root.") from None
    finally:
        lock.release()


def _path(runs_root: Path) -> Path:
    return runs_root / WORKBENCH_FOLDER / VIEWS_FILE
