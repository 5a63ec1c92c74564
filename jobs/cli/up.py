"""The command that starts the workbench: supervisor and pages, until Ctrl-C; runs continue."""

from pathlib import Path
from typing import Annotated

import typer

from jobs.cli.options import DEFAULT_PORT, DEFAULT_RUNS_ROOT, DatabaseUrl, RunsRoot
from jobs.cli.workbench import Reach, Supervision, Workbench
from jobs.runs.stop_time import DEFAULT_GRACE_SECONDS


def up(  # noqa: PLR0913, PLR0917 - typer reads a command's options from its arguments
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    database_url: DatabaseUrl = None,
    port: Annotated[int, typer.Option(help="Port of the pages; 0 is any free one.", min=0, max=65535)] = DEFAULT_PORT,
    opens_browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the browser.")] = True,
    max_running: Annotated[int, typer.Option(help="Runs that may run at once.", min=1)] = 1,
    stop_grace: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=0.0,
            help="A run that is asked to stop is ended by force after this time, or after twice its longest recent "
            "step, evaluation and checkpoint if that is more.",
        ),
    ] = DEFAULT_GRACE_SECONDS,
    remote_host: Annotated[
        str | None,
        typer.Option("--allow-remote", metavar="ADDRESS", help="Listen beyond this machine: behind a TLS proxy only."),
    ] = None,
    allowed_hosts: Annotated[
        list[str] | None, typer.Option("--allow-host", metavar="NAME", help="A proxy's host name to accept.")
    ] = None,
    sign_in: Annotated[
        Path | None,
        typer.Option("--sign-in", metavar="FILE", help="OpenID provider and roles: people sign in, without a link."),
    ] = None,
) -> None:
    """Start the supervisor and the pages; Ctrl-C ends both; runs continue."""
    reach = Reach(remote_host, tuple(allowed_hosts or ()), sign_in)
    workbench = Workbench(runs_root, database_url, port, Supervision(max_running, stop_grace), reach)
    raise typer.Exit(workbench.serve(opens_browser))
