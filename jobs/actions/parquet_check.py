"""Each Parquet file of an imported run is read once within limits: its metadata may hide what it takes."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.actions.archive_members import BASE_SECONDS, BYTES_A_SECOND, ArchiveError
from jobs.launchers.local import WITHHELD_VARIABLES, project_environment
from jobs.recording.parquet_sizes import MAX_BYTES
from jobs.recording.trajectory_file import TOKEN_COLUMNS

_MODULE = "jobs.actions.parquet_check"
_PROCESS_BYTES = 1 << 30
"""Of addresses, for the process itself."""


def check_parquet_files(folder: Path, source: Path) -> None:
    """Refuse what was copied from `source` into `folder` if a Parquet file takes too much memory or time to read.

    A damaged file is left to those who read it, who name it.

    Raises:
        ArchiveError: A file does.
    """
    paths = sorted(path for path in folder.rglob("*.parquet") if path.is_file())
    if not paths:
        return
    seconds = BASE_SECONDS + sum(path.stat().st_size for path in paths) / BYTES_A_SECOND
    try:
        read = subprocess.run(
            [sys.executable, "-P", "-m", _MODULE, str(MAX_BYTES + _PROCESS_BYTES)],
            input=b"\0".join(os.fsencode(path.absolute()) for path in paths),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=project_environment(dict.fromkeys(WITHHELD_VARIABLES, "")),
            timeout=seconds,
            check=False,
        ).stdout
    except subprocess.TimeoutExpired as error:
        read = error.stdout or b""
    num_read = read.count(b"\n")
    if num_read < len(paths):
        culprit = paths[num_read].relative_to(folder)
        limits = f"{MAX_BYTES:,} bytes of memory or {seconds:.0f} s"
        raise ArchiveError(f"{source}: {culprit} takes more than {limits} to read; nothing is written.")


def main() -> None:
    """Read the files that the input names, as pages do, within so many bytes; write a line for each that was read."""
    limit = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for path in sys.stdin.buffer.read().split(b"\0"):
        try:
            _read(os.fsdecode(path))
        except MemoryError:
            raise
        except (pa.ArrowException, OSError, ValueError):
            pass
        sys.stdout.write("\n")
        sys.stdout.flush()


def _read(path: str) -> None:
    names = pq.read_schema(path).names
    for columns in ([name for name in names if (name in TOKEN_COLUMNS) == of_tokens] for of_tokens in (False, True)):
        pq.read_table(path, columns=columns, use_threads=False)


if __name__ == "__main__":
    main()
