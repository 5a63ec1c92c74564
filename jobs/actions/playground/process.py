"""Models that pages ask: `exgrpo chat`, `probe` and `replay` in processes, which take the memory of a model with them.

One playground at a time runs for all users of a server.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from multiprocessing.connection import wait
from pathlib import Path
from threading import Lock
from typing import IO, Any

from db import DATABASE_URL_VARIABLE
from exgrpo_core.errors import UserError
from jobs.actions.replay.facts import ReplayRow
from jobs.runs.launchers.local import WITHHELD_VARIABLES, project_environment
from jobs.runs.people import Role, needs
from jobs.specs.train import TrainSpec, dump_spec
from jobs.training.probe_report import ProbeReport

_TICK_SECONDS = 0.25
_OF_DATABASE = frozenset({"PGPASSWORD", "PGPASSFILE"})
"""What opens the database with its address."""
_ONE_AT_A_TIME = Lock()


class ChatError(UserError):
    """No answer; one sentence says why."""


@needs(Role.OPERATOR)
def ask_models(
    runs_root: Path, targets: Sequence[str], prompt: str, options: Sequence[str] = ()
) -> Generator[dict[str, Any] | None]:
    """Yield the records of `exgrpo chat --json` as they come, and None a few times a second while there is none.

    Closing the iterator ends the process.

    Raises:
        ChatError: The command failed; the message is its own.
    """
    while not _ONE_AT_A_TIME.acquire(timeout=_TICK_SECONDS):
        yield None
    try:
        with tempfile.TemporaryFile() as errors:
            command = ["chat", *options, "--", *targets]
            process = _start(runs_root, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
            yield from _records(process, prompt, errors)
    finally:
        _ONE_AT_A_TIME.release()


@needs(Role.OPERATOR)
def execute_update(
    runs_root: Path, database_url: str | None, run_id: str, step: int, settings: Sequence[str], method: str | None
) -> Generator[list[ReplayRow] | None]:
    """Yield None a few times a second, and at last the rows of `exgrpo replay --update`, as `ask_models` does.

    Raises:
        ChatError: The command failed; the message is its own.
    """
    while not _ONE_AT_A_TIME.acquire(timeout=_TICK_SECONDS):
        yield None
    try:
        options = [f"--set={setting}" for setting in settings] + ([f"--method={method}"] if method else [])
        command = ["replay", f"--step={step}", "--update", *options, "--", run_id]
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            process = _start(
                runs_root, command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, database_url=database_url
            )
            try:
                while process.poll() is None:
                    yield None
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(_TICK_SECONDS)
            finally:
                process.kill()
                process.wait()
            output.seek(0)
            content = output.read()
            if not content:
                raise _failure(process, errors)
            yield list(map(ReplayRow.of, json.loads(content)))
    finally:
        _ONE_AT_A_TIME.release()


def _failure(process: subprocess.Popen[bytes], errors: IO[bytes]) -> ChatError:
    errors.seek(0)
    messages = errors.read().decode(errors="replace").strip().splitlines()
    return ChatError(messages[-1] if messages else f"It ended with code {process.returncode}.")


def _start(
    runs_root: Path, command: Sequence[str], *, stdin: int, stdout: int | IO[bytes], stderr: int | IO[bytes],
    database_url: str | None = None,
) -> subprocess.Popen[bytes]:  # fmt: skip
    begin = [sys.executable, "-P", "-m", "jobs.cli", command[0], "--json", "--runs-root", str(runs_root.absolute())]
    withheld = WITHHELD_VARIABLES if database_url is None else WITHHELD_VARIABLES - _OF_DATABASE
    variables = dict.fromkeys(withheld, "") | ({DATABASE_URL_VARIABLE: database_url} if database_url else {})
    environment = project_environment(variables)
    return subprocess.Popen([*begin, *command[1:]], stdin=stdin, stdout=stdout, stderr=stderr, env=environment)


def _records(process: subprocess.Popen[bytes], prompt: str, errors: IO[bytes]) -> Generator[dict[str, Any] | None]:
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with contextlib.suppress(BrokenPipeError), process.stdin as pipe:
            pipe.write(prompt.encode())
        output, begun = process.stdout.fileno(), b""
        while True:
            if not wait([output], _TICK_SECONDS):
                yield None
                continue
            block = os.read(output, 1 << 16)
            if not block:
                break
            *lines, begun = (begun + block).split(b"\n")
            yield from map(json.loads, lines)
        if process.wait() != 0:
            raise _failure(process, errors)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@needs(Role.OPERATOR)
def start_probe(runs_root: Path, spec: TrainSpec) -> "ProbeProcess":
    """Start to sample answers of a specification's model, without a run."""
    return ProbeProcess(spec, runs_root)


class ProbeProcess:
    """Runs `exgrpo probe` with a specification; nothing is written to the runs root."""

    def __init__(self, spec: TrainSpec, runs_root: Path) -> None:
        """Start it."""
        self._result: ProbeReport | str | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="exgrpo-probe-")
        path = Path(self._folder.name)
        (path / "spec.json").write_text(dump_spec(spec), encoding="utf-8")
        command = ["probe", "--spec", str(path / "spec.json")]
        with (path / "report.json").open("wb") as report:
            self._process = _start(
                runs_root, command, stdin=subprocess.DEVNULL, stdout=report, stderr=subprocess.DEVNULL
            )

    def result(self) -> ProbeReport | str | None:
        """Return the report, one sentence on why there is none, or None while the probe is running."""
        if self._result is None and self._process.poll() is not None:
            self._result = self._read(Path(self._folder.name))
            self._folder.cleanup()
        return self._result

    def stop(self) -> None:
        """End the process if it is running."""
        self._process.kill()
        self._process.wait()
        self.result()

    def _read(self, path: Path) -> ProbeReport | str:
        if not (content := (path / "report.json").read_text(encoding="utf-8")):
            return f"The probe ended with code {self._process.returncode}."
        answer = json.loads(content)
        return str(answer["why"]) if "why" in answer else ProbeReport.from_json(answer)
