"""Rollouts of other programs as a run folder that every page opens; what a path gets later is added."""

import json
import logging
import math
import shutil
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from zlib import crc32

from exgrpo.jobs.actions.archive import staging_folder
from exgrpo.jobs.runs.directory import WORKBENCH_FOLDER
from exgrpo.jobs.runs.journal import Journal, JournalKind
from exgrpo.jobs.runs.rollout_formats.formats import RolloutFormat, UnknownRolloutsError
from exgrpo.jobs.runs.rollout_formats.rollout_files import announce
from exgrpo.jobs.runs.rollout_formats.source import WHOLE, BadRows, Part, RolloutSource, SourceChangedError
from exgrpo_core import recording
from exgrpo_core.bounded_json import read_json
from exgrpo_core.durable_files import write_whole
from exgrpo_core.errors import UserError, first_few
from exgrpo_core.recording.record_file import FILE_PATTERN
from exgrpo_core.recording.rows import RecordedStep
from exgrpo_core.recording.run_attempt import MAX_NAME

logger = logging.getLogger(__name__)

READ_SECONDS = 0.1
"""What is read in this time is in the database a second later."""
LOOK_SECONDS = 5.0
"""Between two looks for further parts of a path that are a run of their own."""
_RETRY_SECONDS = 10.0
_QUIET_SECONDS = 30.0
"""A path that got nothing for so long is shown as finished until it gets more."""
_MAX_STATE_BYTES = 64 << 20


class RolloutImport:
    """Reads the rollouts of one path into a run of a root; each call continues where the last one ended.

    A later import into the same root shows the same run, unless the path's content is another than it was.
    """

    def __init__(self, path: Path, reads: RolloutFormat, root: Path, name: str, part: Part = WHOLE) -> None:
        """Continue an earlier import."""
        self.path, self._reads, self._root, self.part = path, reads, root, part
        self._name = (
            f"{name[: max(0, MAX_NAME - len(part.name) - 1)]} {part.name}"[-MAX_NAME:].strip() if part.name else name
        )
        self.origin = str(path)
        state = root / WORKBENCH_FOLDER / "imports"
        state.mkdir(parents=True, exist_ok=True)
        self._state_path = state / f"{crc32(f'{path}{part.key}'.encode('utf-8', 'surrogateescape')):08x}.json"
        self._source = RolloutSource(path, part=part)
        self._run: recording.Run | None = None
        self.run_id = ""
        self.num_rollouts = 0
        self._unread: Iterator[RecordedStep] | None = None
        self._num_parts = 0
        self._num_saved = (0, 0)
        self._num_noted = 0
        self._last_id = ""
        self.steps: set[int] = set()
        self._grew_at = time.monotonic()
        self._retry_at = 0.0
        self._restore()

    @property
    def bad(self) -> BadRows:
        """The rows that could not be read."""
        return self._source.bad

    def advance(self, give_up_at: float = math.inf) -> bool:
        """Read what is new, in parts until this time of `time.monotonic`; return whether there is more.

        After an error all is read again, some seconds later.

        Raises:
            OSError: A file cannot be read.
            CannotRecordError: The run cannot be written.
        """
        if time.monotonic() < self._retry_at:
            return False
        try:
            return self._read(give_up_at)
        except SourceChangedError:
            self._forget()
            return self.advance(give_up_at)
        except Exception:
            self._forget()
            self._retry_at = time.monotonic() + _RETRY_SECONDS
            raise

    def _read(self, give_up_at: float) -> bool:
        self._unread = self._unread or self._reads.read(self._source)
        for step in self._unread:
            self._write(step)
            if time.monotonic() >= give_up_at:
                return True
        self._unread = None
        if (self._num_parts, self.bad.num) != self._num_saved:
            self._note_bad()
            self._save()
            self._num_saved = (self._num_parts, self.bad.num)
            self._grew_at = time.monotonic()
        elif time.monotonic() - self._grew_at > _QUIET_SECONDS:
            self.close()
        return False

    def _write(self, step: RecordedStep) -> None:
        announce()
        run = self._opened()
        recorded_ids = run.log(step.step, step.metrics, step.trajectories)
        if run.num_lost:
            raise recording.CannotRecordError(f"{run.path}: not all can be recorded: {run.why_lost}.")
        for _ in range(recorded_ids.count("")):  # the run has noted itself that they are left out
            self.bad.add(self.path, 0, run.why_lost)
            self._num_noted += 1
        self._num_parts += 1
        self.num_rollouts += sum(map(bool, recorded_ids))
        self.steps.add(step.step)

    def _opened(self) -> recording.Run:
        """Return the run, begun where there is none; what is read again has the id that links have."""
        if self._run is None and self.run_id:
            self._run = recording.reopen(self._root / self.run_id)
        elif self._run is None:
            settings = {"source": self.origin, "format": self._reads.title}
            self._run = recording.start(self._name, settings, self._root, run_id=self._last_id or None)
            self.run_id = self._last_id = self._run.run_id
            self._save(is_whole=False)
        return self._run

    def _note_bad(self) -> None:
        """Record of new rows that could not be read that they are left out, as every page and query of the run says."""
        num_new = self.bad.num - self._num_noted
        if not self.run_id or not num_new:
            return
        sentences = self.bad.sentences[self._num_noted :]
        for sentence in sentences:
            self._opened().note_left_out(1, sentence)
        if num_new > len(sentences):
            self._opened().note_left_out(num_new - len(sentences), "further rows; the first ones are named")
        self._num_noted = self.bad.num

    def close(self) -> None:
        """End the run; what comes later is added to it."""
        if self._run is not None:
            self._run.finish()
            self._run = None

    def _save(self, *, is_whole: bool = True) -> None:
        """Keep how far the path was read, once all of it is in the run's files; else which run is to be forgotten."""
        if self._run is not None:
            self._run.flush()
        folder = self._root / self.run_id
        state = {"run_id": self.run_id, "positions": self._source.positions, "bad": asdict(self.bad)}
        write_whole(
            self._state_path,
            json.dumps(state | {"num_bytes": _num_bytes(folder) if is_whole else None}),
            is_durable=False,
        )

    def _restore(self) -> None:
        """Continue with the run of an earlier import whose files are as it left them; any other is forgotten."""
        try:
            state = read_json(self._state_path, _MAX_STATE_BYTES)
            self.run_id = self._last_id = state["run_id"]
            is_whole = bool(self.run_id) and _num_bytes(self._root / self.run_id) == state["num_bytes"]
            source = RolloutSource(self.path, state["positions"], BadRows(**state["bad"]), self.part)
        except (OSError, ValueError, KeyError, TypeError):
            return
        if is_whole:
            self._source = source
            self._num_saved = (0, source.bad.num)
            self._num_noted = source.bad.num if self.run_id else 0
        else:
            self._forget()

    def _forget(self) -> None:
        """Remove the run, from the database too, so that the path is read from its beginning."""
        self.close()
        if self.run_id:
            shutil.rmtree(self._root / self.run_id, ignore_errors=True)
            Journal(self._root).append(JournalKind.DELETED, self.run_id)
        self.run_id = ""
        self._source, self._unread = RolloutSource(self.path, part=self.part), None
        self.num_rollouts, self.steps, self._num_noted = 0, set(), 0


def open_imports(
    formats: Mapping[Path, RolloutFormat], names: Mapping[Path, str], root: Path, known: Iterable[RolloutImport] = ()
) -> list[RolloutImport]:
    """Return the imports of paths, one for each part of a path; none for those that are known."""
    of_known = {(source.path, source.part.key) for source in known}
    return [
        RolloutImport(path, reads, root, names[path], part)
        for path, reads in formats.items()
        for part in reads.parts(path)
        if (path, part.key) not in of_known
    ]


def _num_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in (folder / "attempts").rglob(FILE_PATTERN))


@dataclass(frozen=True, slots=True)
class Imported:
    """The new runs, training before its evaluation; the numbers of steps and rollouts, and rows that were skipped."""

    run_ids: tuple[str, ...]
    num_steps: int
    num_rollouts: int
    bad: BadRows

    @property
    def run_id(self) -> str:
        """The first of the runs."""
        return self.run_ids[0]


def import_rollouts(path: Path, reads: RolloutFormat, runs_root: Path, name: str, origin: str = "") -> Imported:
    """Write the rollouts at a path as a run that has ended; it appears in the runs root once it is whole.

    `origin` is what the run names as its source, by default the path.

    Raises:
        UnknownRolloutsError: Not one row is a rollout, or has metrics of a step.
        OSError: A file cannot be read or written.
    """
    runs_root.mkdir(parents=True, exist_ok=True)
    with staging_folder(runs_root, "adopting") as staging:
        sources = open_imports({path: reads}, {path: name}, staging)
        for source in sources:
            source.origin = origin or source.origin
            source.advance()
            source.close()
        sentences = [*dict.fromkeys(sentence for source in sources for sentence in source.bad.sentences)]
        num_bad = sum(source.bad.num for source in sources)
        found = [source for source in sources if source.steps]
        if not found:
            why = first_few(sentences, num_bad) or "every file is empty."
            raise UnknownRolloutsError(f"{path}: holds no rollouts; {why}")
        for source in found:
            (staging / source.run_id).rename(runs_root / source.run_id)
    for source in found:
        Journal(runs_root).append(JournalKind.IMPORTED, source.run_id, source=source.origin)
    steps = set().union(*(source.steps for source in found))
    num_rollouts = sum(source.num_rollouts for source in found)
    run_ids = tuple(source.run_id for source in found)
    return Imported(run_ids, len(steps), num_rollouts, BadRows(num_bad, sentences))


def read_sources(
    formats: Mapping[Path, RolloutFormat], names: Mapping[Path, str], root: Path, follows: bool
) -> Generator[bool]:
    """Read paths into runs of a root, some of each a time, and yield whether there is more at once.

    Without `follows` what they get later is left out.
    """
    imports: list[RolloutImport] = []
    unread: list[RolloutImport] = []
    look_at = 0.0
    try:
        while True:
            if time.monotonic() >= look_at:
                new = open_imports(formats, names, root, imports)
                imports, unread = imports + new, unread + new
                look_at = time.monotonic() + LOOK_SECONDS if follows else math.inf
            read = [source for source in unread if not _advance(source)]
            yield len(read) < len(unread)
            if not follows:
                unread = [source for source in unread if source not in read]
                for source in read:
                    source.close()
    finally:
        for source in imports:
            source.close()


def _advance(source: RolloutImport) -> bool:
    num_bad = source.bad.num
    try:
        has_more = source.advance(time.monotonic() + READ_SECONDS)
        if source.bad.num > num_bad:
            newest = source.bad.sentences[-1]
            logger.warning("%s: %d rows are left out, the last named one: %s", source.path, source.bad.num, newest)
        return has_more
    except MemoryError:
        raise  # of this process, whose limit a file has reached
    except Exception as error:  # noqa: BLE001 - the other paths are still read
        why = error if isinstance(error, UserError | OSError) else f"{type(error).__name__}: {error}"
        logger.warning("%s: %s", source.path, why)
        return False
