"""Runs a program that ends when its starter ends: `python -m exgrpo.jobs.runs.launchers.end_with_starter PROGRAM ...`.

On Linux the kernel sends SIGTERM when the starter dies, even of SIGKILL; elsewhere the program simply runs.
"""

import ctypes
import os
import signal
import sys

_SET_PARENT_DEATH_SIGNAL = 1
STARTER_VARIABLE = "EXGRPO_STARTER_PID"


def main(command: list[str]) -> None:
    """Become `command`, bound to the process that `EXGRPO_STARTER_PID` names."""
    end_with_starter(signal.SIGTERM)
    os.environ[STARTER_VARIABLE] = str(os.getpid())  # the starter of the command's children
    os.execvp(command[0], command)


def end_with_starter(signal_number: signal.Signals) -> None:
    """Have the kernel send this process a signal when its starter dies; exit if `EXGRPO_STARTER_PID` has died already.

    The starter is the thread that started this process.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal_number)
    starter = os.environ.get(STARTER_VARIABLE)
    if starter is not None and os.getppid() != int(starter):
        sys.exit(1)  # the starter died before the call of prctl


if __name__ == "__main__":
    main(sys.argv[1:])
