"""Which files answer: on a network file system that hangs, a file's reader would wait as long as that does."""

import contextlib
import os
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

ANSWER_SECONDS = 5.0
"""A file that takes longer to open hangs, until it is open."""

_hanging: set[Path] = set()
"""Each has a thread that waits for it."""


def find_hanging(paths: Iterable[Path]) -> set[Path]:
    """Return the files that cannot be opened in time; each is waited for once, not at every call.

    One that is missing, may not be read or has no possible name answers.
    """
    asked = set(paths)
    left = [*(asked - _hanging)]
    while left:
        left = left[_ask(left) :]
    return asked & _hanging


def _ask(paths: Sequence[Path]) -> int:
    """Open files up to one that hangs and return how many that are."""
    answered: list[Path] = []
    is_given_up = threading.Event()

    def open_all() -> None:
        for path in paths:
            # NFS answers many calls from its cache, but asks the server when a file is opened.
            with contextlib.suppress(OSError, ValueError):
                os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
            answered.append(path)
            if is_given_up.is_set():
                _hanging.discard(path)
                return

    thread = threading.Thread(target=open_all, name="open files", daemon=True)
    thread.start()
    while thread.is_alive():
        num_answered = len(answered)
        thread.join(ANSWER_SECONDS)
        if thread.is_alive() and len(answered) == num_answered:
            _hanging.add(paths[num_answered])
            is_given_up.set()
            # It may have answered since, before its thread could see the sign.
            if len(answered) > num_answered:
                _hanging.discard(paths[num_answered])
            return num_answered + 1
    return len(answered)
