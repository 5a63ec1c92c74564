"""The command that is started when a run ends, such as one that sends a message."""

import logging
import os
import shlex

from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.launchers.local import ON_END_VARIABLE, WITHHELD_VARIABLES, LaunchError, start_detached
from exgrpo_core.recording.run_status import RunStatus

logger = logging.getLogger(__name__)
_STDERR = 2


def start_command(run: RunDirectory, status: RunStatus) -> None:
    """Start the command of `EXGRPO_ON_END` with the run's directory and its status; nothing waits for its end."""
    command = os.environ.get(ON_END_VARIABLE, "")
    try:
        if words := shlex.split(command):
            path = run.path.resolve()
            start_detached([*words, str(path), status.value], _STDERR, path, dict.fromkeys(WITHHELD_VARIABLES, ""))
    except (LaunchError, ValueError) as error:
        logger.warning("%s: %s", ON_END_VARIABLE, error)
