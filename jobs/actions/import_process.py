"""Files of other programs, read in a process of its own that can be ended: its time and its memory are bounded.

A file on which the process ends, or is ended, is left out by the next process, and is one of the skipped rows.
"""

import contextlib
import logging
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from exgrpo.jobs.actions.preflight.data_preview import DataPreview, preview_rollouts
from exgrpo.jobs.actions.rollout_import import Imported, import_rollouts, read_sources
from exgrpo.jobs.actions.view_roots import runs_at
from exgrpo.jobs.runs.directory import CommandError
from exgrpo.jobs.runs.launchers.end_with_starter import STARTER_VARIABLE, end_with_starter
from exgrpo.jobs.runs.launchers.local import WITHHELD_VARIABLES, project_environment
from exgrpo.jobs.runs.people import Role, needs
from exgrpo.jobs.runs.rollout_formats import rollout_files
from exgrpo.jobs.runs.rollout_formats.formats import find_format, find_only_format, formats_in
from exgrpo.jobs.runs.rollout_formats.own_format import load_own_format
from exgrpo_core.durable_files import explain
from exgrpo_core.errors import InputError, UserError
from exgrpo_core.process_setup import keep_private
from exgrpo_core.recording import run
from exgrpo_core.recording.run_attempt import MAX_NAME

_MODULE = "exgrpo.jobs.actions.import_process"
SILENT_SECONDS = 60.0
"""A process that says nothing for so long, and longer for a large file, is ended."""
_BYTES_A_SECOND = 10 << 20
MEMORY_BYTES = 4 << 30
_POLL_SECONDS = 0.2
_FILE, _ANSWER, _REFUSAL, _END = range(4)


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
        preview: DataPreview = _only(_answers("preview", Path(path), file))
        return preview


@needs(Role.OPERATOR)
def import_in_process(
    runs_root: Path, path: Path, own_format: Path | None = None, name: str = "", origin: str = ""
) -> Imported:
    """Import rollouts as a run, by default with the name of the path, and with the path as its source, `origin`.

    Raises:
        UserError: They cannot be imported; says why.
    """
    imported: Imported = _only(_answers("import", path.resolve(), own_format, runs_root, name, origin))
    return imported


def recognise(paths: Sequence[Path], own_format: Path | None) -> dict[Path, str]:
    """Return what the paths hold, several formats in a folder each on its own, with the titles; "" of runs.

    Raises:
        UserError: A path holds neither.
    """
    titles: dict[Path, str] = _only(_answers("recognise", paths, own_format))
    return titles


def read_in_process(names: dict[Path, str], own_format: Path | None, root: Path, follows: bool) -> Generator[bool]:
    """Read paths into runs of a root, as `read_sources`; while the process is silent there is nothing more."""
    answers = _answers("view", names, own_format, root, follows)
    try:
        yield from (bool(answer) for answer in answers)
        while True:
            yield False
    finally:
        answers.close()


def _only(answers: Iterator[Any]) -> Any:  # noqa: ANN401 - what the work answers
    return next(answer for answer in answers if answer is not None)


def _answers(work: str, *arguments: object) -> Generator[Any]:
    """Yield what the process answers, and None while it is silent; the next answer is made once it is asked for."""
    left_out: dict[Path, str] = {}
    while True:
        connection, process = _start()
        last: list[Path] = []
        try:
            connection.send((work, arguments, left_out))
            yield from _received(connection, last)
            return
        except (EOFError, ConnectionError):
            why = "the process that read it ended, as when memory runs out; it is left out."
        except TimeoutError:
            why = f"could not be read within {SILENT_SECONDS:.0f} seconds; it is left out."
        finally:
            process.kill()
            process.wait()
            connection.close()
        if not last or last[-1] in left_out:
            raise CommandError(f"{last[-1] if last else 'The process that reads files'}: {why}")
        left_out[last[-1]] = why


def _start() -> "tuple[Connection, subprocess.Popen[bytes]]":
    ours, theirs = Pipe()
    with theirs:
        command = [sys.executable, "-P", "-m", _MODULE, str(theirs.fileno())]
        environment = project_environment(dict.fromkeys(WITHHELD_VARIABLES, "") | {STARTER_VARIABLE: str(os.getpid())})
        return ours, subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=environment, pass_fds=[theirs.fileno()]
        )


def _received(connection: "Connection[Any, Any]", last: list[Path]) -> Generator[Any]:
    """Yield the answers and, as None, times without one; `last` gets each file whose reading begins."""
    heard_at = time.monotonic()
    while True:
        if not connection.poll(_POLL_SECONDS):
            if last and time.monotonic() - heard_at > SILENT_SECONDS + _num_bytes(last[-1]) / _BYTES_A_SECOND:
                raise TimeoutError
            yield None
            continue
        kind, value = connection.recv()
        if kind == _FILE and value is not None:
            last.append(value)
        elif kind == _ANSWER:
            yield value
            connection.send(None)
        elif kind == _REFUSAL:
            raise value
        elif kind == _END:
            return
        heard_at = time.monotonic()


def _num_bytes(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _recognise(paths: Sequence[Path], own_format: Path | None) -> Iterator[dict[Path, str]]:
    sources = [part for path in paths for part in ((own_format is None and formats_in(path)) or [path])]
    others = [path for path in sources if not runs_at(path)]
    own = load_own_format(own_format, others) if own_format is not None else None
    yield {path: (own or find_format(path)).title if path in others else "" for path in sources}


def _view(names: dict[Path, str], own_format: Path | None, root: Path, follows: bool) -> Iterator[bool]:
    own = load_own_format(own_format) if own_format is not None else None
    yield from read_sources({path: own or find_format(path) for path in names}, names, root, follows)


def _import(path: Path, own_format: Path | None, runs_root: Path, name: str, origin: str) -> Iterator[Imported]:
    reads = load_own_format(own_format, [path]) if own_format is not None else find_only_format(path)
    yield import_rollouts(path, reads, runs_root, name or Path(origin or path).stem[-MAX_NAME:], origin)


def _preview(path: Path, own_format: Path | None) -> Iterator[DataPreview]:
    yield preview_rollouts(path, None if own_format is None else load_own_format(own_format))


_WORKS: dict[str, Callable[..., Iterator[object]]] = {
    "recognise": _recognise, "view": _view, "import": _import, "preview": _preview
}  # fmt: skip


def main(connection: "Connection[Any, Any]") -> None:
    """Do the work that the starter names, each part once it is asked for."""
    work, arguments, left_out = connection.recv()
    rollout_files.left_out.update(left_out)
    rollout_files.listeners.append(lambda file: connection.send((_FILE, file)))
    try:
        for answer in _WORKS[work](*arguments):
            connection.send((_ANSWER, answer))
            connection.recv()
        connection.send((_END, None))
    except UserError as error:
        kind = InputError if isinstance(error, InputError) else CommandError
        connection.send((_REFUSAL, kind(str(error))))
    except OSError as error:
        connection.send((_REFUSAL, CommandError(f"{error.filename or arguments[0]}: {explain(error)}.")))


if __name__ == "__main__":
    keep_private()
    end_with_starter(signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the starter ends it
    logging.getLogger(run.__name__).setLevel(logging.ERROR)  # what it warns of is in the answer
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    with contextlib.suppress(BrokenPipeError, EOFError):
        main(Connection(int(sys.argv[1])))
