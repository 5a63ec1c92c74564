"""Models that pages ask: `exgrpo chat`, `probe` and `replay` in processes, which take the memory of a model with them.

One playground at a time runs for all users of a server.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Collection, Generator, Sequence
from contextlib import closing
from multiprocessing.connection import wait
from pathlib import Path
from threading import Lock
from typing import IO, Any

from exgrpo.db import DATABASE_URL_VARIABLE
from exgrpo.jobs.actions.replay.facts import ReplayRow
from exgrpo.jobs.runs.launchers.local import WITHHELD_VARIABLES, project_environment
from exgrpo.jobs.runs.people import Role, needs
from exgrpo.jobs.specs.train import TrainSpec, dump_spec
from exgrpo.jobs.training.probe_report import ProbeReport
from exgrpo_core.errors import UserError

WAITS = "Another model runs. This begins when that one has ended."
"""What pages show while a model waits."""
_TICK_SECONDS = 0.25
_DIFFERS = 1
"""Exit code of `exgrpo replay` where a record differs."""
_OF_DATABASE = frozenset({"PGPASSWORD", "PGPASSFILE"})
"""What opens the database with its address."""
_ONE_AT_A_TIME = Lock()


class ChatError(UserError):
    """No answer; one sentence says why."""


@needs(Role.OPERATOR)
def ask_models(
    runs_root: Path, targets: Sequence[str], prompt: str, options: Sequence[str] = ()
) -> Generator[dict[str, Any] | None]:
    """Yield the records of `exgrpo chat --json` as they come; {} a few times a second before and between them.

    None is yielded in place of {} while another model runs. Closing the iterator ends the process.

    Raises:
        ChatError: The command failed; the message is its own.
    """
    begun = b""
    with closing(_output(runs_root, ["chat", *options, "--", *targets], prompt)) as blocks:
        for block in blocks:
            *lines, begun = (begun + (block or b"")).split(b"\n")
            yield from map(json.loads, lines)
            if not block:
                yield None if block is None else {}


@needs(Role.OPERATOR)
def execute_steps(
    runs_root: Path, database_url: str | None, run_id: str, options: Sequence[str]
) -> Generator[list[ReplayRow] | None]:
    """Yield the rows of `exgrpo replay`, before them [] a few times a second, None while another model runs.

    Closing the iterator ends the process.

    Raises:
        ChatError: The command failed; the message is its own.
    """
    command, content = ["replay", *options, "--", run_id], b""
    with closing(_output(runs_root, command, database_url=database_url, ends_with=(0, _DIFFERS))) as blocks:
        for block in blocks:
            content += block or b""
            yield None if block is None else []
    yield list(map(ReplayRow.of, json.loads(content)))


def _output(
    runs_root: Path, command: Sequence[str], prompt: str = "", *, database_url: str | None = None,
    ends_with: Collection[int] = (0,),
) -> Generator[bytes | None]:  # fmt: skip
    """Yield what a command prints; b"" a few times a second while it prints nothing, None while another one runs.

    Raises:
        ChatError: The command printed nothing or ended with another code; the message is its own.
    """
    while not _ONE_AT_A_TIME.acquire(timeout=_TICK_SECONDS):
        yield None
    try:
        with tempfile.TemporaryFile() as errors:
            process = _start(
                runs_root, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                database_url=database_url,
            )  # fmt: skip
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                with contextlib.suppress(BrokenPipeError), process.stdin as pipe:
                    pipe.write(prompt.encode())
                output, has_printed = process.stdout.fileno(), False
                while (block := os.read(output, 1 << 16) if wait([output], _TICK_SECONDS) else None) != b"":
                    has_printed |= block is not None
                    yield block or b""
                if process.wait() not in ends_with or not has_printed:
                    errors.seek(0)
                    messages = errors.read().decode(errors="replace").strip().splitlines()
                    raise ChatError(messages[-1] if messages else f"It ended with code {process.returncode}.")
            finally:
                process.kill()
                process.wait()
                process.stdout.close()
    finally:
        _ONE_AT_A_TIME.release()


def _start(
    runs_root: Path, command: Sequence[str], *, stdin: int, stdout: int | IO[bytes], stderr: int | IO[bytes],
    database_url: str | None = None,
) -> subprocess.Popen[bytes]:  # fmt: skip
    begin = [
        sys.executable,
        "-P",
        "-m",
        "exgrpo.jobs.cli",
        command[0],
        "--json",
        "--runs-root",
        str(runs_root.absolute()),
    ]
    withheld = WITHHELD_VARIABLES if database_url is None else WITHHELD_VARIABLES - _OF_DATABASE
    variables = dict.fromkeys(withheld, "") | ({DATABASE_URL_VARIABLE: database_url} if database_url else {})
    environment = project_environment(variables)
    return subprocess.Popen([*begin, *command[1:]], stdin=stdin, stdout=stdout, stderr=stderr, env=environment)


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
