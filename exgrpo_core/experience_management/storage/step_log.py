"""What each step changed in the replay buffer's index: a snapshot and the steps after it give the newest state.

A log `steps-000001-1f2e3d4c.log` is written by one opening of the buffer. It is a sequence of blocks as in a snapshot
file: first the position that the opening continues from, in this or an older log, then one block a step. So logs make a
tree, and the steps after a snapshot are on the path from its position to the end of the newest log.

How a run that is killed comes back, for example with a checkpoint at step 10 and a kill in step 14:

1. A step writes its new trajectories behind those of the growing segment, and its log block (what moved between
   buckets, retired, was drawn, scored and replayed) once they are on disk: a block never names rows that are not there.
2. The snapshot of step 10 holds the index, the size of each segment then, and the log's position then: `L1` at 900 kB.
3. The kill leaves steps 11 to 13 in `L1`, and half of step 14's block, whose checksum is wrong: `iterate_blocks` ends
   before it.
4. A resume reads the snapshot. With `keeps_later` it does the moves of steps 11 to 13 again (`step_replay.py`), which
   gives the index as after step 13, bit for bit; without, the trajectories behind the snapshot's sizes are left alone.
5. The resumed run opens a new segment and a new log, `L2`, whose first block names its parent: `L1` at the end of step
   13 (of step 10 without `keeps_later`). Another resume from step 10 finds the newest log, walks from it to its
   parents, and keeps the path that leads to 900 kB of `L1`.
"""

import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from exgrpo_core.durable_files import sync
from exgrpo_core.experience_management.storage.append_file import AppendFile
from exgrpo_core.experience_management.storage.snapshot import encode_block, has_block, iterate_blocks, read_columns
from exgrpo_core.faults import Fault, FaultKind

_NAME = re.compile(r"steps-(\d{6})-[0-9a-f]{8}\.log")

_NUMBERS = ("step", "num_collected", "next_trajectory_id", "num_rows", "num_trajectories")
"""Numbers of a step; one that holds something else in their place ends the log, as a damaged one does."""


class LogPosition(NamedTuple):
    """The first `num_bytes` of a log."""

    name: str
    num_bytes: int


@dataclass(frozen=True, slots=True)
class LoggedStep:
    """A step in a log: its header, and where the block is that says what it changed."""

    header: Mapping[str, Any]
    log: Path
    start: int
    stop: int

    @property
    def end(self) -> LogPosition:
        """The position after it."""
        return LogPosition(self.log.name, self.stop)

    def read_columns(self) -> dict[str, NDArray[Any]]:
        """Read what the step changed."""
        return read_columns(self.log, self.start, self.stop)


class StepLog:
    """The log of one opening of the buffer; its file is made for the first step."""

    def __init__(self, directory: Path, writer: Executor, parent: LogPosition | None = None) -> None:
        self._directory = directory
        self._writer = writer
        self._parent = parent
        self._file: AppendFile | None = None

    @property
    def position(self) -> LogPosition | None:
        """The end of all steps so far, those before this opening included; None before the first step of all."""
        return self._parent if self._file is None else LogPosition(self._file.path.name, self._file.num_bytes)

    def append(
        self, header: Mapping[str, Any], columns: Mapping[str, NDArray[Any]], after: Sequence[AppendFile]
    ) -> Future[None]:
        """Begin to write a step, once `after` are durable, and return what is done when it is on disk."""
        if self._file is None:
            # The log of a branch's parent is in another folder.
            names = os.listdir(self._directory) + ([] if self._parent is None else [self._parent.name])
            numbers = [int(match[1]) for match in map(_NAME.fullmatch, names) if match]
            name = f"steps-{max(numbers, default=0) + 1:06d}-{secrets.token_hex(4)}.log"
            self._file = AppendFile.create(self._directory / name, self._writer)
            self._file.append(encode_block({"parent": self._parent}, {}))
            self._writer.submit(sync, self._directory)
        return self._file.append_after(after, encode_block(header, columns))

    def settle(self) -> None:
        """Wait until all steps are on disk.

        Raises:
            OSError: One could not be written.
        """
        if self._file is not None:
            self._file.settle()

    def close(self) -> None:
        """Close the file once all writes are done."""
        if self._file is not None:
            self._file.close()


def steps_after(directory: Path, position: LogPosition | None) -> list[LoggedStep]:
    """Return the steps after a snapshot's position, in order.

    A step that was cut by a kill or is damaged ends the log that it is in.
    """
    names = sorted(name for name in os.listdir(directory) if _NAME.fullmatch(name))
    for newest in reversed(names):
        path = _path_to(directory, newest, position)
        if path is None:
            continue
        return _read(directory, path)
    return []


def find_log_faults(directory: Path, positions: Iterable[LogPosition], is_branch: bool) -> list[Fault]:
    """Return the logs that are missing or damaged, by folder and name; `positions` are those of the snapshots.

    A block at a log's end that a kill cut, or that is being written, is no damage: nothing continues from it. Logs that
    are in the folder of a branch's parent are not missing.
    """
    # A log that is being written grows while it is read.
    sizes = {path.name: path.stat().st_size for path in directory.glob("steps-*.log") if path.is_file()}
    needed: dict[str, int] = {}
    for name, num_bytes in positions:
        needed[name] = max(num_bytes, needed.get(name, 0))
    ends = dict.fromkeys(sizes, 0)
    for name in sizes:
        for header, _, end in _blocks(directory / name):
            ends[name] = end
            parent = header.get("parent")
            if parent is not None and (parent[0] in sizes or not is_branch):
                needed[parent[0]] = max(parent[1], needed.get(parent[0], 0))
    missing = [name for name in needed if _NAME.fullmatch(name) and name not in sizes]
    damaged = [
        name
        for name, size in sizes.items()
        if ends[name] < needed.get(name, 0) or has_block(directory / name, ends[name] + 1, size)
    ]
    kinds = dict.fromkeys(missing, FaultKind.MISSING) | dict.fromkeys(damaged, FaultKind.CHANGED)
    return [Fault(kind, f"{directory.name}/{name}") for name, kind in sorted(kinds.items())]


def _read(directory: Path, path: Sequence[tuple[str, int, float]]) -> list[LoggedStep]:
    steps = []
    for name, start, stop in path:
        if start == stop:
            continue
        last = 0
        for header, first, end in _blocks(directory / name):
            if start < end <= stop and "parent" not in header:
                if not all(isinstance(header.get(number, 0), int) for number in _NUMBERS):
                    break
                steps.append(LoggedStep(header, directory / name, first, end))
            last = end
        if last < stop < float("inf"):
            break
    return steps


def _path_to(directory: Path, newest: str, position: LogPosition | None) -> list[tuple[str, int, float]] | None:
    """Return the parts (log, start, stop) from a position to the end of a log; None if that is not behind it."""
    parts: list[tuple[str, int, float]] = []
    name, stop = newest, float("inf")
    while True:
        if position is not None and name == position.name:
            return [(name, position.num_bytes, stop), *parts] if position.num_bytes <= stop else None
        first = next(_blocks(directory / name), None)
        if first is None or "parent" not in first[0]:
            return None
        parts.insert(0, (name, 0, stop))
        if first[0]["parent"] is None:
            return parts if position is None else None
        parent = LogPosition(*first[0]["parent"])
        if _NAME.fullmatch(parent.name) is None or parent.name >= name:
            return None
        name, stop = parent


def _blocks(path: Path) -> Iterator[tuple[dict[str, Any], int, int]]:
    return iterate_blocks(path) if path.is_file() else iter(())
