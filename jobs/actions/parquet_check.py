"""Each Parquet file of an imported run or a restored backup is read once within limits: metadata may hide its size."""

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
"""Address space that the process itself takes, bytes."""


def check_parquet_files(folder: Path, source: Path) -> None:
    """Refuse what was copied from `source` into `folder` if a Parquet file takes too much memory or time to read.

    A damaged file is left to those who read it, who name it.

    Raises:
        ArchiveError: A file takes too much, or the check cannot run.
    """
    paths = sorted(path for path in folder.rglob("*.parquet") if path.is_file())
    if not paths:
        return
    seconds = BASE_SECONDS + sum(path.stat().st_size for path in paths) / BYTES_A_SECOND
    is_late = False
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
        is_late, read = True, error.stdout or b""
    except OSError as error:
        raise ArchiveError(f"{source}: its Parquet files cannot be checked ({error}); nothing is written.") from None
    num_read = read.count(b"\n") - 1
    if num_read < 0 and not is_late:
        raise ArchiveError(f"{source}: the check of its Parquet files does not start; nothing is written.")
    if num_read < len(paths):
        culprit = paths[max(num_read, 0)].relative_to(folder)
        limit = (
            f"{seconds:.0f} s, with the files before it,"
            if is_late
            else f"{MAX_BYTES:,} bytes, or this machine's limit, of memory"
        )
        raise ArchiveError(
            f"{source}: {culprit} takes more than {limit} to read; nothing is written; use another copy."
        )


def main() -> None:
    """Read the files that standard input names, as pages do; the argument limits the address space, in bytes.

    A line is written once it has started, and one for each file that was read.
    """
    limit = int(sys.argv[1])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    allowed = min(value for value in (limit, soft, hard) if value != resource.RLIM_INFINITY)
    resource.setrlimit(resource.RLIMIT_AS, (allowed, hard))
    _write_line()
    for path in sys.stdin.buffer.read().split(b"\0"):
        try:
            _read(os.fsdecode(path))
        except MemoryError:
            raise
        except (pa.ArrowException, OSError, ValueError):
            pass
        _write_line()


def _write_line() -> None:
    sys.stdout.write("\n")
    sys.stdout.flush()


def _read(path: str) -> None:
    """Read the values of tokens and the other columns one after the other, as pages do."""
    names = pq.read_schema(path).names
    for is_of_tokens in (False, True):
        columns = [name for name in names if (name in TOKEN_COLUMNS) is is_of_tokens]
        pq.read_table(path, columns=columns, use_threads=False)


if __name__ == "__main__":
    main()
