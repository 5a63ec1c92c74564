"""The command that looks at this machine."""

from typing import Annotated

import typer

from jobs.cli.doctor import CheckResult, examine
from jobs.cli.options import DEFAULT_PORT, DEFAULT_RUNS_ROOT, EXIT_FAILURE, AsJson, DatabaseUrl, RunsRoot, print_json

_MARKS = {"ok": "ok  ", "warning": "note", "failure": "FAIL"}


def doctor(
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    database_url: DatabaseUrl = None,
    port: Annotated[int, typer.Option(help="Port of the workbench.", min=0, max=65535)] = DEFAULT_PORT,
    as_json: AsJson = False,
) -> None:
    """Check Python, PyTorch, GPU, Ray, verl, vLLM, database, ports and disk, and say what to do."""
    checks = examine(runs_root, database_url, port)
    if as_json:
        print_json(checks)
    else:
        for check in checks:
            advice = f" - {check.advice}" if check.advice else ""
            typer.echo(f"{_MARKS[check.result]} {check.name:<11} {check.detail}{advice}")
    if any(check.result is CheckResult.FAILURE for check in checks):
        raise typer.Exit(EXIT_FAILURE)
