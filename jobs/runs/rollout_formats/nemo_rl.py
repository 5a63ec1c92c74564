"""NeMo-RL: `train_data_stepN.jsonl` and `val_data_stepN.jsonl` of its log folder, a rollout a line.

Source: `Logger.log_batched_dict_as_jsonl` and `grpo_train` of NeMo-RL. Files of training have the texts of messages
without roles; a mask of tokens says how many of them the model wrote, and whether the last one is among them.
"""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from exgrpo.jobs.runs.rollout_formats.rollout_files import bare
from exgrpo.jobs.runs.rollout_formats.row_fields import Row, extra_of, number_of, of_mask, only_value
from exgrpo.jobs.runs.rollout_formats.source import RolloutSource, Sample
from exgrpo_core.recording.openai_messages import messages_of
from exgrpo_core.recording.rows import Message, RecordedStep, RecordedTrajectory

_FILE = re.compile(r"(?:train|val)_data_step\d+\.jsonl")
_OWN = ("content", "rewards", "idx", "input_lengths")


def recognises(sample: Sample) -> bool:
    """Whether there is a file of that name with contents and rewards."""
    return any({"content", "rewards"} <= row.keys() for row in sample.rows_of("*_data_step*.jsonl"))


def read(source: RolloutSource) -> Iterator[RecordedStep]:
    """Yield the rollouts of each step, those of validation too."""
    files = [file for file in source.files(".jsonl") if _FILE.fullmatch(bare(file).name)]
    yield from source.rollouts(files, lambda row, file: [(_step(file), _trajectory(row, file))])


def _step(file: Path) -> int:
    return int(file.stem.rpartition("step")[2])


def _trajectory(row: Row, file: Path) -> RecordedTrajectory:
    length = row.get("input_lengths")
    mask = row.get("token_loss_mask")
    mask = mask[:length] if isinstance(mask, list) and isinstance(length, int) else None
    tokens, log_probs, advantages = (_generated(row.get(name), mask) for name in
                                     ("token_ids", "generation_logprobs", "advantages"))  # fmt: skip
    return RecordedTrajectory(
        messages=_messages(row, mask),
        reward=number_of(row, "rewards"),
        num_tokens=None if mask is None else sum(map(bool, mask)),
        token_ids=tokens,
        log_probs=log_probs,
        advantage=only_value(advantages),
        extra=extra_of(row, _OWN) | {"kind": "train" if file.name.startswith("train") else "validation"},
    )


def _generated(values: object, mask: list[float] | None) -> list[Any] | None:
    return of_mask(values[: len(mask)], mask) if isinstance(values, list) and mask else None


def _messages(row: Row, mask: list[float] | None) -> tuple[Message, ...]:
    """Return the messages; without roles those of the model are the last and every second before it."""
    content = row.get("content")
    if not isinstance(content, list) or not all(isinstance(text, str) for text in content):
        return messages_of(row, "content")
    is_last = mask is None or bool(mask and mask[-1])
    num_turns = 1 if mask is None else sum(bool(after) and not before for before, after in pairwise([0, *mask]))
    last = len(content) - (1 if is_last else 2)
    generated = {last - 2 * turn for turn in range(num_turns)}
    return tuple(
        Message("assistant" if index in generated else "user", text, is_generated=index in generated)
        for index, text in enumerate(content)
    )
