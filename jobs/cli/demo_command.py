"""The command that shows everything at once on a small model."""

from typing import Annotated

import typer

from jobs.cli.demo import run_demo
from jobs.cli.options import DEFAULT_RUNS_ROOT, RunsRoot


def demo(
    headless: Annotated[bool, typer.Option("--headless", help="End with one line of JSON, without the pages.")] = False,
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
) -> None:
    """Train a tiny model with ExGRPO and with on-policy Dr.GRPO, then show both in the browser."""
    raise typer.Exit(run_demo(runs_root, headless))
