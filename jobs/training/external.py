"""Off-policy trajectories from a file (LUFFY-style): one response a question, behavior probability 1."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from exgrpo_core.types import Experience, Question
from jobs.runs.control import TrainingError


def load_external(path: Path, questions: Sequence[Question], tokenizer: Any, max_tokens: int) -> dict[int, Experience]:  # noqa: ANN401 (any Hugging Face tokenizer)
    """Return question index -> trajectory from JSON lines with `question_id` and `response`.

    Behavior log-probs are 0 (probability 1 under the reshaped ratio) and rewards 1: the file holds correct responses.

    Raises:
        TrainingError: The file, or a row, cannot be used; the message names file and row.
    """
    index_of = {question.question_id: question.index for question in questions}
    external: dict[int, Experience] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise TrainingError(f"external_experience: {path} cannot be read ({error}); give a JSON-lines file.") from None
    for number, line in enumerate(lines, start=1):
        question_id, response = _read_row(path, number, line)
        if question_id not in index_of:
            continue
        ids = np.asarray([*tokenizer.encode(response, add_special_tokens=False), tokenizer.eos_token_id], np.int32)
        if ids.size > max_tokens:
            raise TrainingError(f"{path}, row {number}: response has {ids.size} tokens, expected at most {max_tokens}.")
        index = index_of[question_id]
        behavior = np.zeros(ids.size, dtype=np.float32)
        external[index] = Experience(-1, -2 - index, index, 0, 1.0, ids, behavior)
    if not external:
        raise TrainingError(f"{path}: no row's question_id is one of the run's questions; check the data set.")
    return external


def _read_row(path: Path, number: int, line: str) -> tuple[str, str]:
    try:
        row = json.loads(line)
        question_id, response = row["question_id"], row["response"]
    except (ValueError, KeyError, TypeError):
        raise TrainingError(f"{path}, row {number}: expected an object with question_id and response.") from None
    if not isinstance(question_id, str) or not isinstance(response, str) or not response:
        raise TrainingError(f"{path}, row {number}: question_id and response must be non-empty strings.")
    return question_id, response
