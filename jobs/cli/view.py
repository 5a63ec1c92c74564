"""`exgrpo view`: pages over rollouts that lie anywhere, which they only read."""

import glob
import logging
import math
import os
import time
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from exgrpo_core.errors import UserError
from exgrpo_core.recording.run_attempt import MAX_NAME
from jobs.actions.view_roots import link_runs, open_view_root
from jobs.cli.options import FormatFile, print_status
from jobs.cli.workbench import Workbench
from jobs.runs.directory import list_run_directories
from jobs.runs.rollout_formats.formats import RolloutFormat, UnknownRolloutsError, find_format, formats_in
from jobs.runs.rollout_formats.own_format import load_own_format

if TYPE_CHECKING:
    from jobs.actions.rollout_import import RolloutImport

logger = logging.getLogger(__name__)

READ_SECONDS = 0.1
"""What is read in this time is in the database a second later."""
LOOK_SECONDS = 5.0
"""Between two looks for further parts of a path that are a run of their own."""
_LAST_COMPONENTS = 2


def view(
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH...", help="Folders, files or globs. Each one is shown as a run.")
    ],
    own_format: FormatFile = None,
    follows: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Also show what is written from now on.")
    ] = True,
    port: Annotated[int, typer.Option(help="Port of the pages. 0 chooses a free port.", min=0, max=65535)] = 0,
    opens_browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the browser.")] = True,
) -> None:
    """Open rollouts or runs read-only. Shows them in the browser and writes only a cache.

    Formats are found by content. Several paths, or formats in a folder, are runs that the page Compare shows together.
    """
    sources = [part for path in expand(paths) for part in ((own_format is None and formats_in(path)) or [path])]
    runs = {path: found for path in sources if (found := runs_at(path))}
    others = [path for path in sources if path not in runs]
    own = load_own_format(own_format, others) if own_format is not None else None
    formats = {path: own or find_format(path) for path in others}
    text = own_format.read_text(encoding="utf-8") if own_format is not None else ""
    root = open_view_root(sources, text)
    link_runs(root, [run for found in runs.values() for run in found])
    names = run_names([*formats])
    for path, reads in formats.items():
        print_status(f"{path}: {reads.title}")
    pages = Workbench(root, None, page_options=["--host", "127.0.0.1", "--port", str(port), "--view"])
    raise typer.Exit(pages.view(opens_browser, read_sources(formats, names, root, follows)))


def expand(paths: Sequence[str]) -> list[Path]:
    """Return the paths and what their globs match, each once.

    Raises:
        UnknownRolloutsError: A path does not exist, or a glob matches nothing.
    """
    found: dict[Path, None] = {}
    for text in paths:
        matches = [text] if os.path.exists(text) else sorted(glob.glob(text, recursive=True))
        if not matches:
            what = "matches nothing" if glob.has_magic(text) else "no such file or folder"
            raise UnknownRolloutsError(f"{text}: {what}; name the folder or file that has the rollouts.")
        found |= dict.fromkeys(Path(match).resolve() for match in matches)
    return [*found]


def runs_at(path: Path) -> list[Path]:
    """Return the run folders that a path is or, as a runs root, holds."""
    if not path.is_dir():
        return []
    return [path] if (path / "run.json").exists() else [run.path for run in list_run_directories(path)]


def run_names(paths: Sequence[Path]) -> dict[Path, str]:
    """Return a short name of each path, by its last folders; those of several paths differ."""
    for num_parts in range(_LAST_COMPONENTS, max((len(path.parts) for path in paths), default=0) + 1):
        names = {path: " ".join(path.with_suffix("").parts[1:][-num_parts:])[-MAX_NAME:] for path in paths}
        if len({*names.values()}) == len(paths):
            break
    return names if paths else {}


def read_sources(
    formats: Mapping[Path, RolloutFormat], names: Mapping[Path, str], root: Path, follows: bool
) -> Generator[bool]:
    """Read paths into runs of a root, some of each a time, and yield whether there is more at once.

    Without `follows` what they get later is left out.
    """
    from jobs.actions.rollout_import import open_imports  # after the pages' start, which takes longer

    imports: list[RolloutImport] = []
    unread: list[RolloutImport] = []
    look_at = 0.0
    try:
        while True:
            if time.monotonic() >= look_at:
                new = open_imports(formats, names, root, imports)
                imports, unread = imports + new, unread + new
                look_at = time.monotonic() + LOOK_SECONDS if follows else math.inf
            read = [source for source in unread if not _advance(source)]
            yield len(read) < len(unread)
            if not follows:
                unread = [source for source in unread if source not in read]
                for source in read:
                    source.close()
    finally:
        for source in imports:
            source.close()


def _advance(source: "RolloutImport") -> bool:
    num_bad = source.bad.num
    try:
        has_more = source.advance(time.monotonic() + READ_SECONDS)
        if source.bad.num > num_bad:
            print_status(
                f"{source.path}: {source.bad.num:,} rows are left out, the last named one: {source.bad.sentences[-1]}"
            )
        return has_more
    except Exception as error:  # noqa: BLE001 - the other paths are still read
        why = error if isinstance(error, UserError | OSError) else f"{type(error).__name__}: {error}"
        logger.warning("%s: %s", source.path, why)
        return False
