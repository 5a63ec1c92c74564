"""Runs tests again and again and prints how often each failed: `python -m tests.repeat NUM_ROUNDS [PYTEST OPTIONS]`.

Each round has another order of files and another seed of Hypothesis; in every second one a busy loop for each core
takes time from the tests. What failed stays in `build/repeated-tests` with the output of its round.
"""

import os
import random
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
FOLDER = REPOSITORY / "build" / "repeated-tests"
SEED_VARIABLE = "EXGRPO_FILE_ORDER_SEED"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put files into the order of the round's seed, the same in every process of the round."""
    paths = sorted({item.path for item in items})
    random.Random(os.environ[SEED_VARIABLE]).shuffle(paths)
    position = {path: number for number, path in enumerate(paths)}
    items.sort(key=lambda item: position[item.path])


def main(num_rounds: int, options: Sequence[str], folder: Path = FOLDER) -> int:
    """Run the rounds and print the rate of each test that failed; return 1 if any did."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    failed: Counter[str] = Counter()
    num_red = 0
    for number in range(1, num_rounds + 1):
        with busy_cores(number % 2 == 0):
            code = run_round(number, options, folder)
        names = failed_tests(folder / f"round-{number}.xml")
        failed.update(names)
        num_red += code != 0
        load = "busy cores" if number % 2 == 0 else "free cores"
        _print(f"round {number} of {num_rounds}, {load}: {len(names)} failed, pytest's code {code}")
        if code == 0:
            for path in folder.glob(f"round-{number}.*"):
                path.unlink()
    for name, count in failed.most_common():
        _print(f"{count} of {num_rounds}: {name}")
    _print(f"{num_red} of {num_rounds} rounds failed" + (f"; their output is in {folder}" if num_red else ""))
    return int(num_red > 0)


@contextmanager
def busy_cores(is_busy: bool) -> Iterator[None]:
    """Keep every core busy within the block, if asked for."""
    command = [sys.executable, "-c", "while True: pass"]
    loops = [subprocess.Popen(command) for _ in range((os.cpu_count() or 1) if is_busy else 0)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def run_round(seed: int, options: Sequence[str], folder: Path) -> int:
    """Run pytest once with its output in files, and return its exit code."""
    command = [sys.executable, "-m", "pytest", "-p", "tests.repeat", f"--hypothesis-seed={seed}"]
    command += [f"--junitxml={folder}/round-{seed}.xml", *options]
    environment = os.environ | {SEED_VARIABLE: str(seed)}
    with (folder / f"round-{seed}.txt").open("wb") as output:
        return subprocess.run(command, cwd=REPOSITORY, env=environment, stdout=output, stderr=output).returncode


def failed_tests(path: Path) -> set[str]:
    """Return the tests that failed by a JUnit file, none without it."""
    cases = ET.parse(path).iter("testcase") if path.exists() else ()
    return {
        f"{case.get('classname')}::{case.get('name')}"
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    }


def _print(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - the program's result


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
