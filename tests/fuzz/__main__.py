"""`make fuzz MINUTES=5`: every target for so much processor time; what makes one crash is kept in tests/fuzz/corpus."""

import argparse
import contextlib
import hashlib
import logging
import sys
import time
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings

from exgrpo_core.errors import UserError
from tests.fuzz.targets import TARGETS

CORPUS = Path(__file__).parent / "corpus"
ROUND = 250
"""Contents tried before the clock is looked at."""


def fuzz(name, target, seconds):
    """Try contents for so many seconds of processor time; return how many, and how many crashed, each kept."""
    executions, crashes = 0, 0
    last = b""

    # To shrink what crashes would take minutes in which nothing new is tried.
    @settings(
        max_examples=ROUND,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(target.tried())
    def attempt(content):
        nonlocal executions, last
        last = content
        executions += 1
        read(target, content)

    end = time.process_time() + seconds
    while time.process_time() < end:
        try:
            attempt()
        except Exception as error:  # noqa: BLE001 - any is a crash
            crashes += 1
            path = CORPUS / name / f"{hashlib.blake2b(last, digest_size=6).hexdigest()}.bin"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(last)
            print(f"{name}: {type(error).__name__}: {str(error)[:300]}\n  {path}", flush=True)  # noqa: T201 - a program
    return executions, crashes


def read(target, content):
    """Let a target read a content; it may refuse it with a sentence."""
    with contextlib.suppress(UserError):
        target.read(content)


def main():
    """Fuzz and return the exit code: 1 if something crashed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="of processor time, for each target")
    parser.add_argument("--target", choices=sorted(TARGETS), action="append")
    chosen = parser.parse_args()
    logging.disable()
    num_crashes = 0
    for name in chosen.target or TARGETS:
        executions, crashes = fuzz(name, TARGETS[name], 60 * chosen.minutes)
        print(f"{name}: {executions:,} executions, {crashes} crashes", flush=True)  # noqa: T201 - a program
        num_crashes += crashes
    return 1 if num_crashes else 0


if __name__ == "__main__":
    sys.exit(main())
