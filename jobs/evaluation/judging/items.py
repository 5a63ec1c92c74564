"""The chains of thought to judge: read from a training run's files, or from a file with human labels."""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

from exgrpo.jobs.runs.control import TrainingError
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.recording.event_reader import iterate_events
from exgrpo.jobs.specs.judging import JudgedSpec
from exgrpo_core.bounded_json import parse_json
from exgrpo_core.recording.lines import parse_lines
from exgrpo_core.recording.record_file import list_records, read_member, read_members

_ALL_STEPS_RIGHT = -1
_MAX_ID_CHARS = 200
Element = TypeVar("Element")


@dataclass(frozen=True, slots=True)
class JudgedItem:
    """One chain of thought with its problem.

    `item_id` is unique within its source. `details` are those of the question. `label` is a human's verdict where
    the source has one.
    """

    item_id: str
    problem: str
    solution: str
    attempt: int | None = None
    trajectory_id: int | None = None
    label: bool | None = None
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Location:
    """Attempt, file, member and line of a trajectory: small enough to hold those of a whole run."""

    attempt: int
    path: Path
    begin: int
    line: int


class RunItems:
    """The trajectories of a training run that are to be judged, in order of step; texts are read a member at a time."""

    def __init__(self, run: RunDirectory, chosen: JudgedSpec) -> None:
        self.source = run.run_id
        self._questions = read_training_questions(run)
        first, last = chosen.first_step or 0, chosen.last_step
        located = [
            (step, location)
            for step, location, reward in counted_trajectories(run)
            if first <= step and (last is None or step <= last) and (reward >= 1.0 or not chosen.only_correct)
        ]
        located.sort(key=lambda found: found[0])
        self._locations = _draw([location for _, location in located], chosen)

    def __len__(self) -> int:
        return len(self._locations)

    def __iter__(self) -> Iterator[JudgedItem]:
        for (attempt, path, begin), group in groupby(self._locations, key=lambda at: (at.attempt, at.path, at.begin)):
            member = read_member(path, begin)
            if member is None:
                raise TrainingError(f"{path}: cannot be read; use another copy of the run.")
            lines = member.lines()
            for location in group:
                yield self._item(parse_lines([lines[location.line]])[0], attempt)

    def _item(self, row: dict[str, Any], attempt: int) -> JudgedItem:
        question = self._questions[row["question_index"]]
        details = question["details"]
        problem = details.get("question") or question["prompt_text"]
        trajectory_id = row["trajectory_id"]
        return JudgedItem(f"{attempt}/{trajectory_id}", problem, row["text"], attempt, trajectory_id, details=details)


class LabelledItems:
    """The solutions of a file with human labels, such as ProcessBench: JSON lines of id, problem, steps and label."""

    def __init__(self, path: Path, chosen: JudgedSpec) -> None:
        self.source = path.name
        items = [item for item, is_correct in _read_labelled(path) if is_correct or not chosen.only_correct]
        self._items = _draw(items, chosen)

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[JudgedItem]:
        return iter(self._items)


Items = RunItems | LabelledItems


def open_items(runs_root: Path, chosen: JudgedSpec) -> Items:
    """Return the chains of thought to judge.

    Raises:
        RunDirectoryError: There is no such run.
        TrainingError: The run or file cannot be read, or has nothing to judge.
    """
    items: Items
    if chosen.file is not None:
        items = LabelledItems(chosen.file, chosen)
    else:
        assert chosen.run_id is not None
        items = RunItems(RunDirectory.open(runs_root, chosen.run_id), chosen)
    if not len(items):
        raise TrainingError(f"{items.source}: has no response to judge; widen `judged`.")
    return items


def counted_trajectories(run: RunDirectory) -> list[tuple[int, _Location, float]]:
    """Return step, place and reward of each fresh trajectory, without those of steps that a later attempt repeated."""
    counted: list[tuple[int, _Location, float]] = []
    for attempt in run.attempts():
        newer = [
            (row["step"], _Location(attempt, record.path, member.begin, number), float(row["reward"]))
            for record in list_records(run.attempt_path(attempt))
            for member in read_members(record.path, 0, {"step"})
            for number, line in enumerate(member.lines())
            if line.startswith(_BEGIN_OF_TRAJECTORY)
            for row in parse_lines([line])
        ]
        first = min((step for step, _, _ in newer), default=math.inf)
        counted = [found for found in counted if found[0] < first] + newer
    return counted


_BEGIN_OF_TRAJECTORY = b'{"kind":"trajectory"'


def read_training_questions(run: RunDirectory) -> dict[int, dict[str, Any]]:
    """Return the recorded training questions of a run by index.

    Raises:
        TrainingError: It has recorded none.
    """
    for event in iterate_events(run, "questions"):
        if event["question_set"] == "training":
            return {question["question_index"]: question for question in event["questions"]}
    raise TrainingError(f"{run.run_id}: has recorded no training questions; name a training run that has started.")


def _draw(elements: Sequence[Element], chosen: JudgedSpec) -> list[Element]:
    """Return `chosen.limit` elements, drawn evenly, in their order."""
    if chosen.limit is None or len(elements) <= chosen.limit:
        return list(elements)
    chosen_indexes = random.Random(chosen.seed).sample(range(len(elements)), chosen.limit)
    return [elements[index] for index in sorted(chosen_indexes)]


def _read_labelled(path: Path) -> Iterator[tuple[JudgedItem, bool]]:
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")  # other line ends may be part of a text
    except (OSError, UnicodeDecodeError) as error:
        raise TrainingError(f"{path}: cannot be read ({type(error).__name__}); give a file of JSON lines.") from None
    seen: set[str] = set()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = parse_json(line)
            item_id = str(row["id"])[: _MAX_ID_CHARS + 1]
            solution = "\n\n".join(row["steps"])
            item = JudgedItem(item_id, str(row["problem"]), solution, label=row["label"] == _ALL_STEPS_RIGHT)
        except (ValueError, KeyError, TypeError):
            raise TrainingError(
                f"{path}, line {number}: expected JSON with id, problem, steps and label (-1: every step is right)."
            ) from None
        if item_id in seen or len(item_id) > _MAX_ID_CHARS:
            raise TrainingError(
                f"{path}, line {number}: id {item_id[:40]!r}: expected a unique one "
                f"of at most {_MAX_ID_CHARS} characters."
            )
        seen.add(item_id)
        yield item, bool(row.get("final_answer_correct", True))
