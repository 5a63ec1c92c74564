"""Commands that pages start, `exgrpo probe` and `replay`: processes, which take the memory of a model with them."""

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

from exgrpo.db import DATABASE_URL_VARIABLE
from exgrpo.jobs.actions.replay.facts import ReplayRow
from exgrpo.jobs.runs.launchers.local import WITHHELD_VARIABLES, project_environment
from exgrpo.jobs.runs.people import Role, needs
from exgrpo.jobs.specs.train import TrainSpec, dump_spec
from exgrpo.jobs.training.probe_report import ProbeReport
from exgrpo_core.errors import UserError

_TICK_SECONDS = 0.25
_OF_DATABASE = frozenset({"PGPASSWORD", "PGPASSFILE"})
"""What opens the database with its address."""


class CommandFailedError(UserError):
    """A command without a result; one sentence says why."""


@needs(Role.OPERATOR)
def execute_steps(
    runs_root: Path, database_url: str | None, run_id: str, options: Sequence[str]
) -> Generator[list[ReplayRow] | None]:
    """Yield None a few times a second, then the rows of `exgrpo replay`; closing the iterator ends the process.

    Raises:
        CommandFailedError: The command failed; the message is its own.
    """
    for rows in _output(runs_root, ["replay", *options, "--", run_id], database_url):
        yield None if rows is None else list(map(ReplayRow.of, rows))


@needs(Role.OPERATOR)
def probe(runs_root: Path, spec: TrainSpec) -> Generator[ProbeReport | None]:
    """Yield None a few times a second, then the report of `exgrpo probe`; closing the iterator ends the process.

    Raises:
        CommandFailedError: The command failed; the message is its own.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        file.write(dump_spec(spec))
        file.flush()
        for report in _output(runs_root, ["probe", "--spec", file.name]):
            yield None if report is None else ProbeReport.from_json(report)


def _output(runs_root: Path, command: Sequence[str], database_url: str | None = None) -> Generator[Any]:
    """Yield None while a command runs, then the JSON that it printed; a command that fails prints `why`."""
    begin = [sys.executable, "-P", "-m", "exgrpo.jobs.cli", command[0], "--json"]
    withheld = WITHHELD_VARIABLES if database_url is None else WITHHELD_VARIABLES - _OF_DATABASE
    variables = dict.fromkeys(withheld, "") | ({DATABASE_URL_VARIABLE: database_url} if database_url else {})
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [*begin, "--runs-root", str(runs_root.absolute()), *command[1:]],
            stdin=subprocess.DEVNULL, stdout=output, env=project_environment(variables),
        )  # fmt: skip
        try:
            while process.poll() is None:
                yield None
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_TICK_SECONDS)
        finally:
            process.kill()
            process.wait()
        output.seek(0)
        content = output.read() if process.returncode >= 0 else b""
        unknown = f"It ended with code {process.returncode}; what the pages printed in the terminal says more."
        answer = json.loads(content) if content else {"why": unknown}
        if "why" in answer:
            raise CommandFailedError(answer["why"])
        yield answer
