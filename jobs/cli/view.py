"""`exgrpo view`: pages over rollouts that lie anywhere, which they only read."""

import glob
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from exgrpo.jobs.actions.import_process import read_in_process, recognise
from exgrpo.jobs.actions.view_roots import copy_rollouts, is_address, link_runs, open_view_root, runs_at
from exgrpo.jobs.cli.options import FormatFile, print_status
from exgrpo.jobs.cli.workbench import Workbench
from exgrpo.jobs.runs.rollout_formats.formats import UnknownRolloutsError
from exgrpo_core.recording.run_attempt import MAX_NAME

_LAST_COMPONENTS = 2


def view(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH...", help="Folders, files, globs, or hf:// and s3:// addresses. Each one is shown as a run."
        ),
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
    found = recognise(expand(paths), own_format)
    runs = {path: at for path in found if (at := runs_at(path))}
    titles = {path: title for path, title in found.items() if path not in runs}
    text = own_format.read_text(encoding="utf-8") if own_format is not None else ""
    root = open_view_root([*found], text)
    link_runs(root, [run for at in runs.values() for run in at])
    names = run_names([*titles])
    for path, title in titles.items():
        print_status(f"{path}: {title}")
    pages = Workbench(root, None, page_options=["--host", "127.0.0.1", "--port", str(port), "--view"])
    raise typer.Exit(pages.view(opens_browser, read_in_process(names, own_format, root, follows)))


def expand(paths: Sequence[str]) -> list[Path]:
    """Return the paths and what their globs match, each once; an address is copied first.

    Raises:
        UnknownRolloutsError: A path does not exist, or a glob matches nothing.
    """
    found: dict[Path, None] = {}
    for text in paths:
        if is_address(text):
            found[copy_rollouts(text)] = None
            print_status(f"{text} was copied. To see what is written there later, start the command again.")
            continue
        matches = [text] if os.path.exists(text) else sorted(glob.glob(text, recursive=True))
        if not matches:
            what = "matches nothing" if glob.has_magic(text) else "no such file or folder"
            raise UnknownRolloutsError(f"{text}: {what}; name the folder or file that has the rollouts.")
        found |= dict.fromkeys(Path(match).resolve() for match in matches)
    return [*found]


def run_names(paths: Sequence[Path]) -> dict[Path, str]:
    """Return a short name of each path, by its last folders; those of several paths differ."""
    for num_parts in range(_LAST_COMPONENTS, max((len(path.parts) for path in paths), default=0) + 1):
        names = {path: " ".join(path.with_suffix("").parts[1:][-num_parts:])[-MAX_NAME:] for path in paths}
        if len({*names.values()}) == len(paths):
            break
    return names if paths else {}
