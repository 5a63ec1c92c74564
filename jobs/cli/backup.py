"""Commands that keep a runs root safe."""

from pathlib import Path
from typing import Annotated

import typer

from jobs.actions.backup import back_up
from jobs.actions.backup import restore as restore_backup
from jobs.cli.options import DEFAULT_RUNS_ROOT, DatabaseUrl, RunsRoot, print_result, print_status

_POSTGRESQL = "Without the database: dump PostgreSQL with pg_dump, or build it again with `exgrpo db rebuild`."


def backup(
    out: Annotated[Path, typer.Argument(metavar="FILE", help="New tar file.")],
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    database_url: DatabaseUrl = None,
) -> None:
    """Write all runs, the workbench's journal and SQLite's database to one file; runs may continue."""
    written = back_up(runs_root, database_url, out)
    print_result(f"{out}: {written.num_runs} runs, {written.num_bytes / 1e6:,.1f} MB.")
    if not written.has_database:
        print_status(_POSTGRESQL)


def restore(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="File that `exgrpo backup` wrote.")],
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
) -> None:
    """Unpack a backup into a new or empty runs root; `exgrpo resume` continues runs that it interrupted."""
    restored = restore_backup(source, runs_root)
    print_result(f"{runs_root}: {restored.num_runs} runs.")
    if not restored.has_database:
        print_status("Restore PostgreSQL's dump with pg_restore, or build the database again: `exgrpo db rebuild`.")
