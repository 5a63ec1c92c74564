"""Plain rows, and those of OpenRLHF, ms-swift, Miles and OpenAI's API: JSON lines that differ in names.

Sources: `batch_inference` of OpenRLHF; `trajectory_rows` of Miles; of ms-swift 4.6 `_maybe_log_completions` with Ray,
and without it `GRPOTrainer.log`, which writes a step a line, each column a list.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from exgrpo.jobs.runs.rollout_formats.row_fields import (
    NO_REWARDS,
    Row,
    extra_of,
    number_of,
    step_of,
    step_of_file,
    with_rewards,
)
from exgrpo.jobs.runs.rollout_formats.source import RolloutSource, Sample
from exgrpo_core.recording.openai_messages import messages_of
from exgrpo_core.recording.rows import RecordedStep, RecordedTrajectory


@dataclass(frozen=True, slots=True)
class _Names:
    """What a format calls its fields, and by which of them it is known."""

    has: frozenset[str]
    lacks: frozenset[str]
    prompt: str
    response: str | None
    """None where the prompt's field has all messages."""
    step: str = "step"


_REWARDS = ("reward", "score")
_KNOWN = (
    _Names(frozenset({"input", "output"}), frozenset({"score"}), "input", "output"),
    _Names(frozenset({"gen_step", "prompt", "completion"}), frozenset(), "prompt", "completion", "gen_step"),
    _Names(frozenset({"step", "prompt", "completion", "advantages"}), frozenset(), "prompt", "completion"),
    _Names(frozenset({"messages"}), frozenset({"eid", "example_id"}), "messages", None),
    *(
        _Names(frozenset({prompt, response, reward}), frozenset({"example_id"}), prompt, response)
        for prompt in ("prompt", "question")
        for response in ("response", "completion")
        for reward in _REWARDS
    ),
)
_ANSWERS = ("answer", "ground_truth", "label")
_ENDS = {"truncated": True, "completed": False}
_OTHER_STEPS = ("global_step", "training_step", "iteration")
_KNOWN_FACTS = (*_REWARDS, *_ANSWERS, *_OTHER_STEPS, "advantages", "advantage", "group", "group_index")


def recognises(sample: Sample) -> bool:
    """Whether all rows have the names of one of the formats."""
    return not sample.head.startswith(b"PAR1") and _names(sample.fields) is not None


def read(source: RolloutSource) -> Iterator[RecordedStep]:
    """Yield the rollouts of each file."""
    yield from source.rollouts(source.files(".jsonl", ".json", ".ndjson"), _rollouts)


def _names(fields: set[str]) -> _Names | None:
    return next((known for known in _KNOWN if known.has <= fields and not known.lacks & fields), None)


def _rollouts(row: Row, file: Path) -> Iterator[tuple[int, RecordedTrajectory]]:
    names = _names({*row})
    if names is None:
        raise ValueError("expected messages, or a prompt with a response.")
    for entry in _entries(row, names):
        yield _step(entry, names, file), _trajectory(entry, names)


def _entries(row: Row, names: _Names) -> list[Row]:
    """Return the rows of a table that has a list a column, else the row."""
    columns = {name: column for name, column in row.items() if isinstance(column, list)}
    if names.response is None or {names.prompt, names.response} - columns.keys():
        return [row]
    first = next(iter(columns[names.prompt]), None)
    if isinstance(first, dict) and "role" in first:  # the prompt and the response are messages
        return [row]
    length = len(columns[names.prompt])
    if any(len(column) != length for column in columns.values()):
        raise ValueError("expected columns of one length.")
    return [row | {name: column[index] for name, column in columns.items()} for index in range(length)]


def _step(row: Row, names: _Names, file: Path) -> int:
    name = next((name for name in (names.step, *_OTHER_STEPS) if name in row), names.step)
    return step_of({name: step_of_file(file)} | row, name)


def _trajectory(row: Row, names: _Names) -> RecordedTrajectory:
    if names.response is None and not isinstance(row[names.prompt], list):
        raise ValueError(f"{names.prompt}: expected a list of messages.")
    messages = messages_of(row, names.prompt, is_generated=names.response is None)
    if names.response is not None:
        messages += messages_of(row, names.response, "assistant")
    known = next((name for name in _REWARDS if name in row), None)
    extra = extra_of(row, {*_KNOWN_FACTS, names.prompt, names.response or "", names.step})
    if known is None and isinstance(parts := row.get("rewards"), dict | list):
        if not isinstance(parts, dict) or not all(isinstance(value, int | float) for value in parts.values()):
            raise ValueError("rewards: expected the name and number of each reward function.")
        reward, extra = with_rewards(extra | parts, [*parts])
    elif known is not None or "advantages" not in row:
        reward = number_of(row, known) if known else None
    else:  # ms-swift has a column for each reward function; null means that it does not apply to the row
        columns = {name for name, value in row.items() if value is None or isinstance(value, int | float)}
        reward, extra = with_rewards(extra, [*columns - NO_REWARDS - {*_KNOWN_FACTS, names.step}])
    answer = next((row[name] for name in _ANSWERS if isinstance(row.get(name), str)), None)
    group = row.get("group_index", row.get("group"))
    return RecordedTrajectory(
        messages=messages,
        reward=reward,
        group=None if group is None else str(group),
        answer=answer,
        is_truncated=_ENDS.get(str(row.get("status"))),
        advantage=number_of(row, "advantages") if "advantages" in row else number_of(row, "advantage"),
        extra=extra,
    )
