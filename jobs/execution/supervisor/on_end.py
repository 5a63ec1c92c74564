"""The command that is started when a run ends, such as one that sends a message."""

import logging
import os
import shlex
from pathlib import Path

from exgrpo.jobs.machine.engine_environments import PROJECT_ROOT
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.launchers.local import ON_END_VARIABLE, WITHHELD_VARIABLES, LaunchError, start_detached
from exgrpo_core.methods.loading import CODE_FOLDER_VARIABLE
from exgrpo_core.recording.run_status import RunStatus

logger = logging.getLogger(__name__)
_STDERR = 2


def start_command(run: RunDirectory, status: RunStatus) -> None:
    """Start the command of `EXGRPO_ON_END` with the run's directory and its status; nothing waits for its end.

    It starts in the folder in which the workbench was started, where no run writes, and does not import the project.
    """
    command = os.environ.get(ON_END_VARIABLE, "")
    try:
        if words := shlex.split(command):
            own = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path != str(PROJECT_ROOT)]
            variables = dict.fromkeys(WITHHELD_VARIABLES, "") | {"PYTHONPATH": os.pathsep.join(own)}
            folder = Path(os.environ.get(CODE_FOLDER_VARIABLE, ""))
            start_detached([*words, str(run.path.resolve()), status.value], _STDERR, folder, variables)
    except (LaunchError, ValueError) as error:
        logger.warning("%s: %s", ON_END_VARIABLE, error)
