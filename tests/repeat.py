"""Runs tests again and again and prints how often each failed: `python -m tests.repeat NUM_ROUNDS [PYTEST OPTIONS]`.

Each round has another order of files and another seed of Hypothesis; in every second one a busy loop for each core
takes time from the tests, and a program that writes without end slows the disk. What failed stays in
`build/repeated-tests` with the output of its round.
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
WRITES = """
import os, sys
with open(sys.argv[1], "wb", buffering=0) as file:
    while True:
        file.seek(0)
        file.write(bytes(1 << 16))
        os.fsync(file.fileno())
"""


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
        with busy_machine(number % 2 == 0, folder):
            code = run_round(number, options, folder)
        names = failed_tests(folder / f"round-{number}.xml")
        failed.update(names)
        num_red += code != 0
        load = "busy cores and disk" if number % 2 == 0 else "free machine"
        _print(f"round {number} of {num_rounds}, {load}: {len(names)} failed, pytest's code {code}")
        if code == 0:
            for path in folder.glob(f"round-{number}.*"):
                path.unlink()
    for name, count in failed.most_common():
        _print(f"{count} of {num_rounds}: {name}")
    _print(f"{num_red} of {num_rounds} rounds failed" + (f"; their output is in {folder}" if num_red else ""))
    return int(num_red > 0)


@contextmanager
def busy_machine(is_busy: bool, folder: Path) -> Iterator[None]:
    """Keep every core and the disk of a folder busy within the block, if asked for."""
    cores, path = [sys.executable, "-c", "while True: pass"], folder / "written"
    disk = [sys.executable, "-c", WRITES, str(path)]
    loops = [subprocess.Popen(command) for command in [cores] * (os.cpu_count() or 1) + [disk]] if is_busy else []
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
        path.unlink(missing_ok=True)


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
