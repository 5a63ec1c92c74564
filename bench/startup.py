"""How long starting takes: the command line, the first page in a browser, and a job's first step.

- `exgrpo --help`, each time a new process.
- A new server on a runs root without runs: from the moment it answers to the page's heading in Chromium, which runs
  already.
- A new worker on the demo's preset, whose model was made before: from its start to the record of the first step on
  disk, the evaluation before it included.

These times depend on the machine's load; next to each is the processor time of the started processes.

Run `python -m bench.startup`; `--short` repeats less, `--python` names the interpreter of the environment that is
measured. Without Chromium or playwright the page is left out.
"""

import argparse
import importlib.util
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

from bench.chains_run import open_chains_run
from bench.page_browser import find_browser, served
from bench.report import report
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.specs.train import load_preset
from exgrpo_core.recording.record_file import iterate_lines, record_path

PRESET = "chains-exgrpo"
POLL_SECONDS = 0.01
TIMEOUT_SECONDS = 120.0
TARGETS = {"help_s": "<= 0.3", "first_page_s": "<= 2", "first_step_s": "<= 5"}


def repeated(name: str, action: Callable[[], float], times: int) -> dict[str, float]:
    """Return and print median and maximum of the seconds that an action returns, and the median processor time."""
    seconds, computing = [], []
    for _ in range(times):
        before = computing_of_children()
        seconds.append(action())
        computing.append(computing_of_children() - before)
    figures = {f"{name}_s": median(seconds), f"{name}_s_max": max(seconds), f"{name}_computing_s": median(computing)}
    print(f"{name:<14}" + "".join(f"{value:10.2f}" for value in figures.values()) + f"   {times} times")
    return figures


def computing_of_children() -> float:
    """Return the processor seconds of all processes that were started and have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def time_help(python: str) -> float:
    """Return the seconds of `exgrpo --help`."""
    began_at = time.perf_counter()
    subprocess.run([python, "-m", "exgrpo.jobs.cli", "--help"], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began_at


def time_first_page(python: str) -> float:
    """Return the seconds from a new server's first answer to the heading of its first page."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as name, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=find_browser(), args=["--headless", "--no-sandbox"])
        page = browser.new_page()
        page.goto("about:blank")
        with served(Path(name), None, python) as link:
            began_at = time.perf_counter()
            page.goto(link)
            page.locator("h1").first.wait_for(timeout=1e3 * TIMEOUT_SECONDS)
            seconds = time.perf_counter() - began_at
        browser.close()
    return seconds


def time_first_step(python: str) -> float:
    """Return the seconds from a worker's start to its first step on disk."""
    with tempfile.TemporaryDirectory() as name:
        run = RunDirectory.create(Path(name), load_preset(PRESET).model_copy(update={"num_steps": 1}))
        attempt = run.claim_attempt()
        events = record_path(run.attempt_path(attempt))
        command = [python, "-m", "exgrpo.jobs.execution.worker", str(run.path), str(attempt)]
        began_at = time.perf_counter()
        worker = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        while not (events.is_file() and any(iterate_lines(events, {"step"}))):
            if worker.poll() is not None or time.perf_counter() - began_at > TIMEOUT_SECONDS:
                worker.kill()
                raise RuntimeError("The worker recorded no step; run it by hand to see why.")
            time.sleep(POLL_SECONDS)
        seconds = time.perf_counter() - began_at
        worker.wait()
    return seconds


def main() -> int:
    """Measure and report; 0 whether or not the targets were met."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--short", action="store_true", help="repeat less")
    parser.add_argument("--python", default=sys.executable, help="whose starts are measured (default: this one's)")
    arguments = parser.parse_args()
    is_short = arguments.short
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    print(f"{'':14}{'median':>10}{'maximum':>10}{'computing':>10}   seconds")
    figures = repeated("help", partial(time_help, arguments.python), 2 if is_short else 20)
    if find_browser() is not None and importlib.util.find_spec("playwright") is not None:
        figures |= repeated("first_page", partial(time_first_page, arguments.python), 1 if is_short else 7)
    with open_chains_run(PRESET):
        pass
    figures |= repeated("first_step", partial(time_first_step, arguments.python), 1 if is_short else 7)
    report("startup", figures, {key: target for key, target in TARGETS.items() if key in figures})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
