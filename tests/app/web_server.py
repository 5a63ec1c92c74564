"""Starts the real server in a process of its own and reads the link it prints."""

import os
import queue
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx2

START_SECONDS = 240
REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass
class ServedWorkbench:
    """A running server; `link` is what it printed."""

    process: subprocess.Popen
    link: str

    @property
    def origin(self):
        parts = urlsplit(self.link)
        return f"{parts.scheme}://{parts.netloc}"

    @property
    def netloc(self):
        return urlsplit(self.link).netloc

    @property
    def token(self):
        return parse_qs(urlsplit(self.link).query)["token"][0]

    def cookie(self):
        return httpx2.get(self.link, timeout=START_SECONDS).headers["set-cookie"].partition(";")[0]

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start(runs_root, *options, token=None, python=sys.executable, **variables):
    words = [python, "-P", "-m", "exgrpo.app.serving", "--runs-root", str(runs_root), "--port", "0", *options]
    return _served(words, {**os.environ, **({"EXGRPO_TOKEN": token} if token else {}), **variables}, REPOSITORY)


def view(*words, cache, python=sys.executable, folder=REPOSITORY):
    command = [python, "-P", "-m", "exgrpo.jobs.cli", "view", "--no-browser", *map(str, words)]
    return _served(command, {**os.environ, "XDG_CACHE_HOME": str(cache)}, folder)


def _served(words, environment, folder):
    process = subprocess.Popen(words, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_pass_on, args=(process.stdout, lines), daemon=True).start()
    try:
        line = lines.get(timeout=START_SECONDS)
    except queue.Empty:
        process.kill()
        process.wait()
        raise AssertionError(f"the server printed no link within {START_SECONDS} s") from None
    assert line.startswith("http"), f"expected a link, got {line!r}"
    return ServedWorkbench(process, line.strip())


def _pass_on(output, lines):
    """Read on to the end: a server whose output nobody takes would wait with its next line for ever."""
    with output:
        for line in output:
            lines.put(line)
    lines.put("")


@contextmanager
def start_with_supervisor(runs_root):
    """Yield a running server whose runs a real supervisor starts; both end with it."""
    words = [sys.executable, "-P", "-m", "exgrpo.jobs.execution.supervisor", "--runs-root", str(runs_root)]
    supervisor = subprocess.Popen(words, cwd=REPOSITORY)
    served = start(runs_root)
    try:
        yield served
    finally:
        served.stop()
        supervisor.terminate()
        supervisor.wait(60)
