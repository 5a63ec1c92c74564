"""An import of rollouts in a process of its own, which leaves other users their pages."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from exgrpo_core.durable_files import explain
from exgrpo_core.errors import UserError
from exgrpo_core.process_setup import keep_private
from exgrpo_core.recording.run_attempt import MAX_NAME
from jobs.actions.preflight.data_preview import DataPreview, preview_rollouts
from jobs.actions.rollout_import import import_rollouts
from jobs.runs.launchers.local import WITHHELD_VARIABLES, project_environment
from jobs.runs.lookup import CommandError
from jobs.runs.people import Role, needs
from jobs.runs.rollout_formats.formats import find_only_format
from jobs.runs.rollout_formats.own_format import load_own_format

_MODULE = "jobs.actions.import_process"


@contextmanager
def format_file(mapping: str) -> Iterator[Path | None]:
    """Yield a file that holds a mapping of the user's, None without one."""
    with TemporaryDirectory(prefix="exgrpo-format-") as folder:
        path = Path(folder, "format.yaml")
        path.write_text(mapping, encoding="utf-8")
        yield path if mapping.strip() else None


@needs(Role.OPERATOR)
def preview_import(path: str, mapping: str) -> DataPreview:
    """Return the first rollouts at a path, read by a mapping in YAML if there is one.

    Raises:
        UserError: There are none, or the mapping is wrong.
    """
    with format_file(mapping) as file:
        return preview_rollouts(Path(path), None if file is None else load_own_format(file))


@needs(Role.OPERATOR)
def import_in_process(runs_root: Path, path: str, mapping: str = "", origin: str = "") -> str:
    """Import rollouts and return the run's id; the run's source is `origin`, by default the path.

    Raises:
        CommandError: They cannot be imported; says why.
    """
    with format_file(mapping) as file:
        command = [sys.executable, "-P", "-m", _MODULE, path, str(runs_root), origin, str(file or "")]
        environment = project_environment(dict.fromkeys(WITHHELD_VARIABLES, ""))
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, env=environment)
    if done.returncode:
        raise CommandError(f"{origin or path}: the import failed; the log of the server has the error.")
    answer = json.loads(done.stdout)
    if "why" in answer:
        raise CommandError(answer["why"])
    return str(answer["run_id"])


def _import(path: Path, runs_root: Path, origin: str, own_format: str) -> dict[str, str]:
    try:
        reads = load_own_format(Path(own_format), [path]) if own_format else find_only_format(path)
        name = Path(origin or path).stem[-MAX_NAME:]
        return {"run_id": import_rollouts(path, reads, runs_root, name, origin).run_id}
    except UserError as error:
        return {"why": str(error)}
    except OSError as error:
        return {"why": f"{error.filename or path}: {explain(error)}."}


if __name__ == "__main__":
    keep_private()
    _, _path, _runs_root, _origin, _own_format = sys.argv
    json.dump(_import(Path(_path).resolve(), Path(_runs_root), _origin, _own_format), sys.stdout)
