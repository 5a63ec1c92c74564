"""Views of curves that users keep under a name: what the address says of them, in a file of the workbench's folder."""

import json
from collections.abc import Mapping
from pathlib import Path

from exgrpo_core.durable_files import write_whole
from jobs.runs.directory import WORKBENCH_FOLDER
from jobs.specs.train import NAME_PATTERN, SpecError

VIEWS_FILE = "views.json"
MAX_VIEWS = 100


def list_views(runs_root: Path) -> dict[str, dict[str, str]]:
    """Return the parameters of the address by the view's name, sorted; what cannot be read is left out."""
    try:
        content = json.loads(_path(runs_root).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(content, dict):
        return {}
    views = {name: view for name, view in content.items() if isinstance(view, dict)}
    return {name: {str(key): str(value) for key, value in views[name].items()} for name in sorted(views)}


def save_view(runs_root: Path, name: str, parameters: Mapping[str, str]) -> None:
    """Keep a view, in place of an older one of its name.

    Raises:
        SpecError: The name is no name of a run, there are too many, or the folder cannot be written.
    """
    views = list_views(runs_root)
    if NAME_PATTERN.fullmatch(name) is None:
        raise SpecError(f"name: expected letters, digits, spaces and . _ + @ -, at most 80, got {name[:90]!r}.")
    if len(views) >= MAX_VIEWS and name not in views:
        raise SpecError(f"views: {MAX_VIEWS} are kept already; delete one first.")
    _write(runs_root, views | {name: dict(parameters)})


def delete_view(runs_root: Path, name: str) -> None:
    """Remove a view; one that is not there changes nothing.

    Raises:
        SpecError: The folder cannot be written.
    """
    views = list_views(runs_root)
    if views.pop(name, None) is not None:
        _write(runs_root, views)


def _write(runs_root: Path, views: Mapping[str, Mapping[str, str]]) -> None:
    path = _path(runs_root)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(views, indent=1))
    except OSError as error:
        raise SpecError(f"{path}: cannot be written ({error.strerror}); choose another runs root.") from None


def _path(runs_root: Path) -> Path:
    return runs_root / WORKBENCH_FOLDER / VIEWS_FILE
