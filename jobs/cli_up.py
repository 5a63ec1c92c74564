"""The command that starts the workbench: supervisor and pages, until Ctrl-C; runs go on."""

from typing import Annotated

import typer

from jobs.cli_options import DEFAULT_PORT, DEFAULT_RUNS_ROOT, DatabaseUrl, RunsRoot


def up(
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    database_url: DatabaseUrl = None,
    port: Annotated[int, typer.Option(help="Port of the pages; 0 takes a free one.", min=0, max=65535)] = DEFAULT_PORT,
    opens_browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the browser.")] = True,
    max_running: Annotated[int, typer.Option(help="Runs that may run at once.", min=1)] = 1,
) -> None:
    """Start the supervisor and the pages; Ctrl-C ends both, runs that are under way go on."""
    from jobs.workbench import Workbench

    workbench = Workbench(runs_root, database_url, port, max_running)
    raise typer.Exit(workbench.serve(opens_browser))
