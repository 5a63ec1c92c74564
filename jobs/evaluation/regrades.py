"""What a grading of recorded answers changed, as a file in a run's folder."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from exgrpo_core.bounded_json import read_json
from exgrpo_core.durable_files import write_whole

REGRADES_FOLDER = "regrades"
EVERY_SCHEME = "all"
"""In the place of a scheme: an evaluation is graded by all three."""


@dataclass(frozen=True, slots=True)
class ChangedOutcome:
    """One recorded answer on which two gradings differ; `answer` says which it is."""

    answer: str
    scheme: str
    before: str
    after: str


@dataclass(slots=True)
class Regrading:
    """Where the new outcomes are, how many answers were graded and how many were and are correct, by scheme."""

    result: str
    num_answers: int
    num_correct_before: dict[str, int]
    num_correct_after: dict[str, int]
    changes: list[ChangedOutcome]


@dataclass(frozen=True, slots=True)
class RecordedRegrading:
    """A grading with the grader that made it."""

    scheme: str
    grader_version: str
    regrading: Regrading


def regrading_path(run_path: Path, scheme: str, grader_version: str) -> Path:
    """Return the file of a grading."""
    return run_path / REGRADES_FOLDER / f"{scheme}-{grader_version}.json"


def write_regrading(run_path: Path, recorded: RecordedRegrading) -> None:
    """Write the file, in place of that of an earlier grading by the same grader."""
    path = regrading_path(run_path, recorded.scheme, recorded.grader_version)
    path.parent.mkdir(exist_ok=True)
    head = {"scheme": recorded.scheme, "grader_version": recorded.grader_version}
    write_whole(path, json.dumps(head | asdict(recorded.regrading)))


def read_regradings(run_path: Path) -> list[RecordedRegrading]:
    """Return every grading in a run's folder, by the name of its file.

    Raises:
        UnreadableFileError: A file is damaged.
        KeyError: A file lacks a field.
        TypeError: A file has a field too many.
    """
    return [_read(path) for path in sorted((run_path / REGRADES_FOLDER).glob("*.json"))]


def _read(path: Path) -> RecordedRegrading:
    content = read_json(path)
    scheme, version = str(content.pop("scheme")), str(content.pop("grader_version"))
    changes = [ChangedOutcome(**change) for change in content.pop("changes")]
    return RecordedRegrading(scheme, version, Regrading(**content, changes=changes))
