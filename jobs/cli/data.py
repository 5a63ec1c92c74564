"""The commands that import, export, back up and check files, and maintain the database."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from exgrpo.db import DATABASE_URL_VARIABLE
from exgrpo.jobs.actions.archive import export_run, import_run
from exgrpo.jobs.actions.backup import back_up, restore
from exgrpo.jobs.actions.import_process import import_in_process
from exgrpo.jobs.actions.model_export import export_model
from exgrpo.jobs.actions.verification import Damage, verify_root, verify_run
from exgrpo.jobs.actions.view_roots import copy_rollouts, is_address
from exgrpo.jobs.cli.options import (
    DEFAULT_RUNS_ROOT,
    AsJson,
    DatabaseUrl,
    FormatFile,
    RunsRoot,
    command_group,
    counted,
    print_json,
    print_result,
    print_status,
)
from exgrpo.jobs.execution.supervisor.indexing import open_fresh_index, rebuild_index
from exgrpo.jobs.runs.directory import CommandError, RunDirectory
from exgrpo.jobs.runs.lookup import check_root, find_run_id
from exgrpo_core.faults import FaultKind, describe_fault

database_app = command_group("Rebuild or inspect the database. It is an index of the run folders.")


def import_(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="Folder or .tar.gz file of a run. Rollouts also by hf:// or s3://.")
    ],
    are_rollouts: Annotated[
        bool,
        typer.Option(
            "--rollouts", help="SOURCE contains rollouts of another program, in a format that `exgrpo view` reads."
        ),
    ] = False,
    own_format: FormatFile = None,
    name: Annotated[str, typer.Option(help="Name of the new run. Default: the name of SOURCE.")] = "",
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    trusts_pickles: Annotated[
        bool,
        typer.Option("--trust-pickles", help="Accept files that can run code when they are read (verl's checkpoints)."),
    ] = False,
) -> None:
    """Copy a run or rollouts into the runs root.

    Damage of the run is printed on stderr.
    """
    if are_rollouts:
        if not is_address(source):
            _import_rollouts(Path(source).resolve(), own_format, runs_root, name)
            return
        with TemporaryDirectory(prefix="exgrpo-import-") as folder:
            copy = copy_rollouts(source, Path(folder) / "copy")
            _import_rollouts(copy, own_format, runs_root, name, source)
        return
    run_id = import_run(Path(source), runs_root, trusts_pickles=trusts_pickles)
    _print_damage(RunDirectory.open(runs_root, run_id))
    print_result(run_id)


def _import_rollouts(path: Path, own_format: Path | None, runs_root: Path, name: str, origin: str = "") -> None:
    imported = import_in_process(runs_root, path, own_format, name, origin)
    bad = imported.bad
    for sentence in bad.sentences:
        print_status(sentence)
    if bad.num > len(bad.sentences):
        print_status(f"... and {bad.num - len(bad.sentences):,} more rows that are no rollouts.")
    rollouts = counted(imported.num_rollouts, "rollout", "rollouts")
    print_status(f"{rollouts} of {counted(imported.num_steps, 'step', 'steps')}.")
    for run_id in imported.run_ids:
        print_result(run_id)


def _print_damage(run: RunDirectory) -> None:
    for damage in verify_run(run):
        print_status(_damage_sentence(damage))


def export(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run, or a checkpoint as RUN@STEP or RUN@last.")],
    out: Annotated[Path | None, typer.Argument(metavar="OUT", help="A .tar.gz file, or a folder to copy into.")] = None,
    overwrites: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
) -> None:
    """Write a run or a checkpoint's model. A run becomes a .tar.gz file or a folder.

    Without OUT it is RUN_ID.tar.gz here. Damage of the run is printed on stderr. transformers and vLLM load the
    folder of a model.
    """
    if "@" in run:
        if out is None:
            raise CommandError(f"OUT: expected a new folder for the model of {run}.")
        print_result(str(export_model(runs_root, run, out)))
        return
    folder = RunDirectory.open(runs_root, find_run_id(runs_root, run))
    _print_damage(folder)
    print_result(str(export_run(folder, out or Path(f"{folder.run_id}.tar.gz"), overwrites=overwrites)))


def publish(
    names: Annotated[list[str], typer.Argument(metavar="RUN...", help="Runs, by id or name.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new folder.")],
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    database_url: DatabaseUrl = None,
) -> None:
    """Write runs as a static page. It opens from a file or a web server."""
    if folder.exists():
        raise CommandError(f"{folder}: exists already; name a new folder.")
    run_ids = [find_run_id(runs_root, name) for name in names]
    with open_fresh_index(runs_root, database_url) as database:
        command = [
            sys.executable,
            "-P",
            "-m",
            "exgrpo.app.publishing",
            "--runs-root",
            str(runs_root),
            str(folder),
            *run_ids,
        ]
        written = subprocess.run(command, env=os.environ | {DATABASE_URL_VARIABLE: database.url}, check=False)
    if written.returncode:
        raise typer.Exit(written.returncode)
    print_result(str(folder / "index.html"))


def backup(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Tar file to write, or with --restore the tar file to read.")
    ],
    restores: Annotated[
        bool,
        typer.Option("--restore", help="Unpack FILE into a new or empty runs root."),
    ] = False,
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
) -> None:
    """Write all runs to one tar file. Runs can go on while it writes."""
    if restores:
        print_result(f"{runs_root}: {counted(restore(file, runs_root), 'run', 'runs')}.")
        return
    left_out = back_up(runs_root, file)
    print_result(f"{file}: {file.stat().st_size / 1e6:,.1f} MB.")
    for path, why in left_out.items():
        print_status(f"{path}: left out, since it cannot be read ({why}); let this user read it, as by chown.")
    if left_out:
        raise typer.Exit(1)


def verify(
    run: Annotated[str | None, typer.Argument(help="Run name or id. Default: all runs.")] = None,
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    as_json: AsJson = False,
) -> None:
    """Check files against their checksums. Exits with 1 if a file is damaged."""
    check_root(runs_root)
    folder = None if run is None else RunDirectory.open(runs_root, find_run_id(runs_root, run))
    damages = verify_root(runs_root) if folder is None else verify_run(folder)
    if as_json:
        print_json([dataclasses.asdict(damage) for damage in damages])
    for damage in [] if as_json else damages:
        print_result(_damage_sentence(damage))
    if any(damage.fault.kind is not FaultKind.NOT_RECORDED for damage in damages):
        raise typer.Exit(1)
    if not as_json:
        print_result("No damage found.")


def _damage_sentence(damage: Damage) -> str:
    run_prefix = f"{damage.run_id}: " if damage.run_id else ""
    return f"{run_prefix}{describe_fault(damage.fault)}"


@database_app.callback()
def _no_options() -> None:
    """Make `rebuild` a command of a group, which Typer does not for a group's only one."""


@database_app.command("rebuild")
def rebuild(runs_root: RunsRoot = DEFAULT_RUNS_ROOT, database_url: DatabaseUrl = None) -> None:
    """Drop the database and build it again from the run folders and the journal."""
    check_root(runs_root)
    num_runs = rebuild_index(runs_root, database_url)
    print_result(f"Built again from {num_runs} runs.")
