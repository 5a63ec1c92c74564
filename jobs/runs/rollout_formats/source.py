"""What an importer of a format gets: a sample to recognise it by, and the files, of which each row is read once."""

import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice, takewhile
from pathlib import Path
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq

from exgrpo.jobs.runs.rollout_formats.rollout_files import announce, bare, left_out, list_files, open_rows, skip
from exgrpo.jobs.runs.rollout_formats.row_fields import Row, doubled
from exgrpo_core.bounded_json import UnreadableFileError, parse_json
from exgrpo_core.errors import UserError, first_line
from exgrpo_core.recording.rows import RecordedStep, RecordedTrajectory
from exgrpo_core.recording.run import MAX_STEP

Rows = Iterable[tuple[int, Row]]
Rollouts = Iterable[tuple[int, RecordedTrajectory]]
"""Each with its step."""

MAX_LINE_BYTES = 64 << 20
PART_SIZE = 256
"""Trajectories of one part of a step, which is what memory holds at once."""
_HEAD_BYTES = 64 << 10
_KNOWN_BYTES = 4096
"""By the checksum of so many first bytes a file is known again."""
_NUM_SAMPLE_ROWS = 8
_MAX_KEPT = 15
_MAX_GROWTH, _MAX_GROWN_BYTES = 100, 256 << 20
"""A file whose rows hold more than this, and more than so many times its size, is not read to its end."""
_GROWN = f"holds over {_MAX_GROWTH} times the size of its file; it is read up to here."


class SourceChangedError(UserError):
    """A file that was read has another beginning now; all of the source is read again."""


@dataclass(slots=True)
class BadRows:
    """Counts the rows that could not be read; the first `_MAX_KEPT` are kept as sentences with file and line."""

    num: int = 0
    sentences: list[str] = field(default_factory=list)

    def add(self, file: Path, line: int, reason: str) -> None:
        """Count one; `line` is 0 where the whole file is meant."""
        self.num += 1
        if len(self.sentences) < _MAX_KEPT:
            where = f"{file.name}, line {line}" if line else file.name
            self.sentences.append(f"{where}: {reason}")


class Sample:
    """The names and the first rows of a path, by which formats recognise their own."""

    def __init__(self, path: Path) -> None:
        """List the files.

        Raises:
            OSError: The path is missing or cannot be read.
        """
        self.path = path
        self.files = [file for file in list_files(path) if file == path or _is_plain_file(file)]

    @cached_property
    def head(self) -> bytes:
        """The first bytes of the first file that is not empty."""
        for file in self.files:
            try:
                with open_rows(file) as opened:
                    if head := opened.read(_HEAD_BYTES):
                        return head
            except (OSError, UnreadableFileError):  # it hides no file after it
                if file == self.path:
                    raise
        return b""

    @cached_property
    def rows(self) -> list[Row]:
        """The first JSON objects of the first file that has some, one a line, or the first rows of a Parquet file."""
        return next((rows for file in self.files[:_NUM_SAMPLE_ROWS] if (rows := _first_rows(file))), [])

    def rows_of(self, pattern: str) -> list[Row]:
        """Return the first rows of the first two files whose unpacked name, or name and folder, has this pattern.

        The first one may hold no rollouts, such as a summary of the others.
        """
        found = islice((file for file in self.files if bare(file).match(pattern)), 2)
        return [row for file in found for row in _first_rows(file)]

    @property
    def fields(self) -> set[str]:
        """The names of fields that most rows of the sample have: some may be bad."""
        counts = Counter(name for row in self.rows for name in row)
        return {name for name, count in counts.items() if count > len(self.rows) / 2}


def _is_plain_file(file: Path) -> bool:
    try:
        return stat.S_ISREG(file.stat().st_mode)
    except OSError:
        return False


def _first_rows(file: Path) -> list[Row]:
    announce(file)
    try:
        if file.suffix == ".parquet":
            rows: list[Row] = next(pq.ParquetFile(file).iter_batches(_NUM_SAMPLE_ROWS), pa.table({})).to_pylist()
            return rows
        with open_rows(file) as opened:
            lines = [opened.readline(MAX_LINE_BYTES) for _ in range(_NUM_SAMPLE_ROWS)]
    except (OSError, ValueError, pa.ArrowException):
        return []
    return [row for line in lines if isinstance(row := _parsed(line, takes_last=True), dict)]


def _parsed(line: bytes, *, takes_last: bool = False) -> object:
    try:
        return parse_json(line, takes_last=takes_last)
    except ValueError as error:
        return error


def is_evaluation(file: Path) -> bool:
    """Whether a file of NeMo-RL, Miles, slime or prime-rl has rollouts of an evaluation, by its name or folder."""
    return file.name.startswith(("val_data_step", "eval_")) or "eval" in file.parts[-3:-1]


@dataclass(frozen=True, slots=True)
class Part:
    """What of a path is a run of its own, since its numbers and those of others have no common mean."""

    key: str = ""
    """Stays the same while the path grows."""
    name: str = ""
    """What the run is called, behind the name of the path."""
    has_file: Callable[[Path], bool] = lambda _: True
    has_row: Callable[[Row], bool] = lambda _: True


WHOLE = Part()


def training_and_evaluation(_: Path) -> list[Part]:
    """Return two parts: evaluations are a run of their own, so that a step's metrics are of training."""
    return [
        Part("-0", has_file=lambda file: not is_evaluation(file)),
        Part("-1", "evaluation", has_file=is_evaluation),
    ]


def with_short_names(parts: Iterable[tuple[str, str, Part]]) -> list[Part]:
    """Return parts, each given with a short name and one that no other has, with the short one where it is alone."""
    given = [*parts]
    counts = Counter(short for short, _, _ in given)
    return [
        replace(part, name="" if len(given) == 1 else short if counts[short] == 1 else long)
        for short, long, part in given
    ]


def with_evaluations(parts: Iterable[Part], is_of_evaluation: Callable[[Row], bool]) -> list[Part]:
    """Return two parts for each: the rows of an evaluation are a run of their own."""

    def halves(part: Part) -> tuple[Part, Part]:
        training = replace(part, has_row=lambda row: part.has_row(row) and not is_of_evaluation(row))
        name = f"{part.name} evaluation".strip()
        of_evaluation = replace(
            part, key=f"{part.key}-1", name=name, has_row=lambda row: part.has_row(row) and is_of_evaluation(row)
        )
        return training, of_evaluation

    return [half for part in parts for half in halves(part)]


class RolloutSource:
    """The files of one path; each row is handed out once, also over several calls while the files grow.

    `positions` has how far each file was read, by its name below the path: a byte of JSON lines, else what the format
    counts; the number of the last row; a checksum of the first bytes of JSON lines; rows that wait, else
    what the format keeps. It can be kept in a file and given to a later source of the same path.
    """

    def __init__(
        self,
        path: Path,
        positions: dict[str, list[int]] | None = None,
        bad: BadRows | None = None,
        part: Part = WHOLE,
    ) -> None:
        self.path = path
        self.bad = bad or BadRows()
        self.positions = positions or {}
        self._part = part
        self._stamps: dict[Path, tuple[int, int]] = {}
        self._num_bytes: Counter[Path] = Counter()
        for file, why in left_out.items():
            if file.is_relative_to(path) and part.has_file(file):
                self.bad.add(file, 0, why)

    def files(self, *suffixes: str) -> list[Path]:
        """Return the files that changed since the last call, in a folder those with these endings, in natural order."""
        files = [
            file for file in list_files(self.path) if not suffixes or bare(file).suffix in suffixes or file == self.path
        ]
        return [file for file in files if self._part.has_file(file) and self._has_changed(file)]

    def _has_changed(self, file: Path) -> bool:
        try:
            about = file.stat()
            stamp, is_plain = (about.st_size, about.st_mtime_ns), stat.S_ISREG(about.st_mode)
        except OSError:
            if not file.is_symlink():  # its writer has removed it since it was listed
                return False
            stamp, is_plain = (0, 0), False
        known, self._stamps[file] = self._stamps.get(file), stamp
        if known is None and not is_plain:
            self.bad.add(file, 0, "expected a plain file, found a pipe, a device or a link that leads nowhere.")
        return is_plain and stamp != known

    def position(self, file: Path) -> int:
        """Return how far a file was read, 0 for one that is new."""
        return self._place(file)[0]

    def num_rows(self, file: Path) -> int:
        """Return the number of the last line or row that was read of a file."""
        return self._place(file)[1]

    def waiting(self, file: Path) -> list[int]:
        """Return the numbers of rows before the position that were not whole yet, else what the format keeps."""
        return self._place(file)[3:]

    def advance(self, file: Path, position: int, num_rows: int = 0, crc: int = 0, waiting: Iterable[int] = ()) -> None:
        """Keep how far a file has been read, the number of its last line, and the rows that are to be read later."""
        self.positions[self._name(file)] = [position, num_rows, crc, *waiting]

    def is_new(self, file: Path) -> bool:
        """Whether a file that is read at once was not read yet; its position is its size.

        Raises:
            SourceChangedError: It has another size than when it was read.
        """
        known = self.position(file)
        if known and known != file.stat().st_size:
            raise SourceChangedError(f"{file} was overwritten while it was being read; open it again.")
        return not known

    def is_of_part(self, row: Row) -> bool:
        """Whether a row belongs to the part of the path that is read."""
        return self._part.has_row(row)

    def rollouts(
        self,
        files: Iterable[Path],
        make: Callable[[Row, Path], Rollouts],
        rows: Callable[[Path], Rows] | None = None,
    ) -> Iterator[RecordedStep]:
        """Yield what is made of each new row of the files; a row of which none can be made is a bad one."""
        yield from in_parts(made for file in files for made in self._all_made(file, rows or self.json_rows, make))

    def _all_made(self, file: Path, rows: Callable[[Path], Rows], make: Callable[[Row, Path], Rollouts]) -> Rollouts:
        for number, row in rows(file):
            made = [*self._made(file, number, row, make)]
            yield from made
            num_chars = sum(len(message.text) for _, trajectory in made for message in trajectory.messages)
            if self._grows_too_much(file, number, num_chars):
                return

    def _grows_too_much(self, file: Path, number: int, num_bytes: int) -> bool:
        """Whether a file's rows hold far more than the file, as of one value that many of them hold; counts as bad."""
        self._num_bytes[file] += num_bytes
        size = file.stat().st_size
        if self._num_bytes[file] <= max(_MAX_GROWN_BYTES, _MAX_GROWTH * size):
            return False
        self.bad.add(file, number, _GROWN)
        if not self.position(file):
            self.advance(file, size)
        return True

    def _made(self, file: Path, number: int, row: Row, make: Callable[[Row, Path], Rollouts]) -> Rollouts:
        if not self.is_of_part(row):
            return []
        try:
            made = [(step, _with_unique_question(trajectory)) for step, trajectory in make(row, bare(file))]
            if any(not 0 <= step <= MAX_STEP for step, _ in made):
                raise ValueError(f"step: expected a whole number of 0 to {MAX_STEP:,}.")
        except Exception as error:  # noqa: BLE001 - another program's rows may have any shape
            why = str(error) if isinstance(error, ValueError) else f"expected a row of this format ({error!r})."
            self.bad.add(file, number, why)
            return []
        return made

    def json_rows(self, file: Path) -> Iterator[tuple[int, Row]]:
        """Yield the new JSON objects of a file, one a line, each with the number of its line; others are bad rows.

        A last line without its end is left for later, unless it is whole. A packed file that is cut off is read up to
        there.

        Raises:
            SourceChangedError: The file is shorter than what was read of it, or has another beginning.
        """
        try:
            yield from self._new_json_rows(file)
        except OSError as error:  # of a packed file
            self.bad.add(file, self.num_rows(file) + 1, f"{first_line(error)}; it is read up to here.")

    def _new_json_rows(self, file: Path) -> Iterator[tuple[int, Row]]:
        position, number, crc = self._place(file)
        try:
            stream, max_bytes = open_rows(file), max(_MAX_GROWN_BYTES, _MAX_GROWTH * file.stat().st_size)
        except (OSError, UnreadableFileError) as error:
            self.bad.add(file, 0, first_line(error))
            return
        with stream as opened:
            head = opened.read(min(position, _KNOWN_BYTES))
            if not skip(opened, position - len(head)) or crc32(head) != crc:
                raise SourceChangedError(f"{file} was overwritten while it was being read; open it again.")
            while line := opened.readline(MAX_LINE_BYTES):
                row = _parsed(line)
                if isinstance(row, ValueError) and not line.endswith(b"\n") and len(line) < MAX_LINE_BYTES:
                    return
                number += 1
                position += len(line)
                if position > max_bytes:
                    self.bad.add(file, number, _GROWN)
                    return
                if len(head) < _KNOWN_BYTES:
                    head = (head + line)[:_KNOWN_BYTES]
                    crc = crc32(head)
                self.advance(file, position, number, crc)
                if isinstance(row, dict):
                    yield number, row
                elif line.strip():
                    reason = f", but it {row}" if isinstance(row, ValueError) else "."
                    self.bad.add(file, number, f"expected a JSON object in one line{reason}")

    def parquet_rows(self, file: Path) -> Iterator[tuple[int, Row]]:
        """Yield the rows of a Parquet file that was not read before; one that is not whole yet is left for later.

        Raises:
            SourceChangedError: The file has another size than when it was read.
        """
        if not self.is_new(file):
            return
        try:
            size, opened = file.stat().st_size, pq.ParquetFile(file)
        except (OSError, pa.ArrowException):
            return
        if twice := doubled(opened.schema_arrow.names):
            self.bad.add(file, 0, twice)
            self.advance(file, size)
            return
        number = 0
        try:
            for batch in opened.iter_batches(PART_SIZE):
                if self._grows_too_much(file, number + 1, batch.nbytes):
                    return
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
        except (OSError, pa.ArrowException) as error:
            self.bad.add(file, number + 1, first_line(error))
        self.advance(file, size)

    def _place(self, file: Path) -> list[int]:
        announce(file)
        return self.positions.get(self._name(file), [0, 0, 0])

    def _name(self, file: Path) -> str:
        return bare(file).relative_to(self.path).as_posix() if file != self.path else "."


def _with_unique_question(trajectory: RecordedTrajectory) -> RecordedTrajectory:
    """Return it with its prompt in the question's id: several tasks may each count their questions from 0."""
    if (given := trajectory.question_id) is None:
        return trajectory
    prompt = takewhile(lambda message: not message.is_generated, trajectory.messages)
    content = "\x1f".join([given, *(f"{message.role}\x1e{message.text}" for message in prompt)])
    return replace(trajectory, question_id=f"{given[:60]} {crc32(content.encode('utf-8', 'surrogatepass')):08x}")


def in_parts(trajectories: Rollouts) -> Iterator[RecordedStep]:
    """Yield trajectories, each with its step, as steps of at most `PART_SIZE` in their order."""
    part: list[RecordedTrajectory] = []
    current = 0
    for step, trajectory in trajectories:
        if part and (step != current or len(part) == PART_SIZE):
            yield RecordedStep(current, tuple(part))
            part = []
        current = step
        part.append(trajectory)
    if part:
        yield RecordedStep(current, tuple(part))
