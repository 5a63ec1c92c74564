"""Runs a program that ends with its starter, however that one ends: `python -m jobs.launchers.bound PROGRAM ...`.

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
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)
    starter = os.environ.get(STARTER_VARIABLE)
    if starter is not None and os.getppid() != int(starter):
        sys.exit(1)  # the starter died before the kernel was told
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
