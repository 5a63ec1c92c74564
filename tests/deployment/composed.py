"""The workbench started as compose starts it, with the same words and variables, on a free port."""

import os
import queue
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from tests.deployment.image_files import REPOSITORY, service

START_SECONDS = 120
_OWN_VARIABLES = ("FORWARDED_ALLOW_IPS", "EXGRPO_TOKEN")


@dataclass(frozen=True)
class Composed:
    """A running workbench; `port` is the one that the proxy would talk to."""

    process: subprocess.Popen
    port: int


@contextmanager
def composed_workbench(runs_root, before=(), **variables):
    """Run the command of the compose file's workbench with SQLite in place of its database.

    `before` comes before the command, to change what it runs in.
    """
    declared = service("workbench")
    program, *words = declared["command"]
    assert program == "exgrpo"
    line = [*before, sys.executable, "-P", "-B", "-m", "exgrpo.jobs.cli", *words, "--port", "0"]
    environment = os.environ | {name: declared["environment"][name] for name in _OWN_VARIABLES}
    environment |= {"EXGRPO_RUNS_ROOT": str(runs_root), "PYTHONPATH": str(REPOSITORY), **variables}
    process = subprocess.Popen(line, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        yield Composed(process, urlsplit(_first_line(process)).port)
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


def _first_line(process):
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=lambda: lines.put(process.stdout.readline()), daemon=True).start()
    try:
        line = lines.get(timeout=START_SECONDS)
    except queue.Empty:
        raise AssertionError(f"the workbench printed no link within {START_SECONDS} s") from None
    assert line.startswith("http"), f"expected a link, got {line!r}"
    return line.strip()
