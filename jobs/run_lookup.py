"""Finding the run that a user means by a few characters."""

import contextlib
from pathlib import Path

from db.shown_names import id_end
from jobs.commands import CommandError, open_run
from jobs.run_directory import RunDirectoryError, list_run_directories


def find_run_id(runs_root: Path, text: str) -> str:
    """Return the id of the one run with this id, this beginning or random end of an id, or this name.

    Raises:
        CommandError: None fits, or several do.
    """
    names = _names(runs_root)
    if text in names:
        return text
    found = [run_id for run_id in names if run_id.startswith(text) or id_end(run_id) == text] if text else []
    found = found or [run_id for run_id, name in names.items() if name == text]
    if len(found) == 1:
        return found[0]
    if not found:
        raise CommandError(f"RUN: no run in {runs_root} has the id, a beginning or end of an id, or the name {text!r}.")
    shown = ", ".join(found[-5:])
    raise CommandError(f"RUN: {len(found)} runs fit {text!r}; give more of the id (among them {shown}).")


def find_judge_id(runs_root: Path, text: str | None) -> str | None:
    """Return the id of the judge's job that `text` means, as in `find_run_id`; None stands for no judge.

    Raises:
        CommandError: None fits, several do, or the job is no judge's.
    """
    if text is None:
        return None
    run_id = find_run_id(runs_root, text)
    kind = open_run(runs_root, run_id).job_spec().kind
    if kind != "judge":
        raise CommandError(f"--judge: expected a judge's job, {run_id} is of kind {kind}; `exgrpo judges` lists them.")
    return run_id


def _names(runs_root: Path) -> dict[str, str]:
    names: dict[str, str] = {}
    for run in list_run_directories(runs_root):
        names[run.run_id] = ""
        with contextlib.suppress(RunDirectoryError):
            names[run.run_id] = str(run.read_run_info()["name"])
    return names
