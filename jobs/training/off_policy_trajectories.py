"""Off-policy trajectories (LUFFY-style), one a question with behavior probability 1, from a file or a data column."""

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from exgrpo_core.types import Experience, Int32Array, Question
from jobs.runs.control import TrainingError
from jobs.specs.train import TrainSpec
from jobs.training.data_rows import DataError
from jobs.training.demonstrations import encode_response, read_responses

logger = logging.getLogger(__name__)


def read_external(spec: TrainSpec, questions: Sequence[Question], tokenizer: Any) -> dict[int, Experience]:  # noqa: ANN401 (any Hugging Face tokenizer)
    """Return question index -> trajectory as a specification says; none where it uses no such trajectories.

    Raises:
        TrainingError: The file, or a row, cannot be used.
        DataError: A row of the data set cannot be used, or none has a trajectory that fits.
    """
    limit = spec.algorithm.max_response_tokens
    if spec.external_experience is not None:
        return load_external(spec.external_experience, questions, tokenizer, limit)
    if spec.external_column is None:
        return {}
    return read_external_column(spec, spec.external_column, questions, tokenizer)


def read_external_column(
    spec: TrainSpec,
    column: str,
    questions: Sequence[Question],
    tokenizer: Any,  # noqa: ANN401 (any Hugging Face tokenizer)
) -> dict[int, Experience]:
    """Return question index -> trajectory from a column of the run's data set, such as `target` of the paper's.

    Rows without one have none; those longer than `algorithm.max_response_tokens` are left out with a warning.

    Raises:
        DataError: A row's response is neither a text nor a list of messages, or no row has one that fits.
    """
    limit, external, num_long = spec.algorithm.max_response_tokens, {}, 0
    texts = read_responses(spec, questions, column, are_all_needed=False)
    for question, text in zip(questions, texts, strict=True):
        if not text:
            continue
        token_ids = encode_response(question, text, tokenizer).token_ids
        if token_ids.size > limit:
            num_long += 1
        else:
            external[question.index] = _experience(question.index, token_ids)
    if num_long:
        logger.warning("%s: %d trajectories longer than %d tokens are left out.", spec.data.source, num_long, limit)
    if not external:
        raise DataError(
            f"{spec.data.source}, {column}: no row has an off-policy trajectory of at most {limit} tokens; name its "
            "column in external_column."
        )
    return external


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
        external[index] = _experience(index, ids)
    if not external:
        raise TrainingError(f"{path}: no row's question_id is one of the run's questions; check the data set.")
    return external


def _experience(index: int, token_ids: Int32Array) -> Experience:
    return Experience(-1, -2 - index, index, 0, 1.0, token_ids, np.zeros(token_ids.size, dtype=np.float32))


def _read_row(path: Path, number: int, line: str) -> tuple[str, str]:
    try:
        row = json.loads(line)
        question_id, response = row["question_id"], row["response"]
    except (ValueError, KeyError, TypeError):
        raise TrainingError(f"{path}, row {number}: expected an object with question_id and response.") from None
    if not isinstance(question_id, str) or not isinstance(response, str) or not response:
        raise TrainingError(f"{path}, row {number}: question_id and response must be non-empty strings.")
    return question_id, response
