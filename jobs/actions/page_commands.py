"""Commands that pages start, `exgrpo probe` and `replay`: processes, which take the memory of a model with them."""

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Collection, Generator, Sequence
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
_DIFFERS = 1
"""Exit code of `exgrpo replay` where a record differs."""
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
    for rows in _output(runs_root, ["replay", *options, "--", run_id], database_url, (0, _DIFFERS)):
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


def _output(
    runs_root: Path, command: Sequence[str], database_url: str | None = None, ends_with: Collection[int] = (0,)
) -> Generator[Any]:
    """Yield None while a command runs, then the JSON that it printed."""
    begin = [sys.executable, "-P", "-m", "exgrpo.jobs.cli", command[0], "--json"]
    withheld = WITHHELD_VARIABLES if database_url is None else WITHHELD_VARIABLES - _OF_DATABASE
    variables = dict.fromkeys(withheld, "") | ({DATABASE_URL_VARIABLE: database_url} if database_url else {})
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [*begin, "--runs-root", str(runs_root.absolute()), *command[1:]],
            stdin=subprocess.DEVNULL, stdout=output, stderr=errors, env=project_environment(variables),
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
        if process.returncode in ends_with and (content := output.read()):
            yield json.loads(content)
            return
        errors.seek(0)
        messages = errors.read().decode(errors="replace").strip().splitlines()
        raise CommandFailedError(messages[-1] if messages else f"It ended with code {process.returncode}.")
