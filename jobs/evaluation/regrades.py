"""What a grading of recorded answers changed, as a file in a run's folder."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter

from exgrpo_core.checksums import read_sealed, seal
from exgrpo_core.durable_files import write_whole

REGRADES_FOLDER = "regrades"
_OLD_FIELDS = frozenset(
    {"scheme", "grader_version", "result", "num_answers", "num_correct_before", "num_correct_after", "changes"}
)
"""Of files of older versions, which have no checksum."""
EVERY_SCHEME = "all"
"""In the place of a scheme: an evaluation is graded by all three."""


@dataclass(frozen=True, slots=True)
class ChangedOutcome:
    """One recorded answer on which two gradings differ; `answer` says which it is."""

    answer: str
    scheme: str
    before: str
    after: str


Count = Annotated[int, Field(ge=0, lt=1 << 53)]


@dataclass(slots=True)
class Regrading:
    """Where the new outcomes are, how many answers were graded and how many were and are correct, by scheme."""

    result: str
    num_answers: Count
    num_correct_before: dict[str, Count]
    num_correct_after: dict[str, Count]
    changes: list[ChangedOutcome]


_REGRADING = TypeAdapter(Regrading)


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
    write_whole(path, seal(json.dumps(head | asdict(recorded.regrading)).encode()))


def read_regradings(run_path: Path) -> tuple[list[RecordedRegrading], list[str]]:
    """Return every grading in a run's folder, by the name of its file, and a sentence on each damaged file."""
    gradings, faults = [], []
    for path in sorted((run_path / REGRADES_FOLDER).glob("*.json")):
        try:
            gradings.append(_read(path))
        except (ValueError, OSError, KeyError):
            faults.append(f"{REGRADES_FOLDER}/{path.name}: differs from what was written, so it is not shown.")
    return gradings, faults


def _read(path: Path) -> RecordedRegrading:
    content = read_sealed(path, _OLD_FIELDS)
    json.dumps(content, ensure_ascii=False).encode()  # half of a character, which no table holds, is an error
    scheme, version = str(content.pop("scheme")), str(content.pop("grader_version"))
    return RecordedRegrading(scheme, version, _REGRADING.validate_python(content))
