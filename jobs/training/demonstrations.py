"""Responses that others wrote: demonstrations for fine-tuning, and off-policy trajectories (LUFFY-style).

Both come from a column of the data or a file, demonstrations also from a made demonstrator. An off-policy trajectory
has behavior probability 1, and a question has at most one.
"""

import json
import logging
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from exgrpo.jobs.runs.control import TrainingError
from exgrpo.jobs.specs.base import SftSpec
from exgrpo.jobs.specs.train import CHAINS_SOURCE, WORD_PROBLEMS_SOURCE, TrainSpec
from exgrpo.jobs.tasks.chains.demonstrators import Demonstrators, write_demonstration
from exgrpo.jobs.tasks.chains.oracle import judge_response
from exgrpo.jobs.tasks.chains.question_set import read_problem
from exgrpo.jobs.tasks.word_problems import demonstrators as word_problems
from exgrpo.jobs.tasks.word_problems.demonstrators import make_facts
from exgrpo.jobs.tasks.word_problems.story import Story
from exgrpo.jobs.training.data_rows import DataError, RawRow, check_text, iterate_raw_rows
from exgrpo.jobs.training.demonstration_turns import encode_turns, is_one_text, one_text, read_turns
from exgrpo.jobs.training.engines.embedded.packing import TokenSequence
from exgrpo.jobs.training.templates import Message, TemplateName, encode_messages
from exgrpo_core.types import Experience, Int32Array, Question

logger = logging.getLogger(__name__)

FACTS_MESSAGE = "Calculate."
THOUGHT_START = "<think>"
"""If the template ends with it, it is removed from the beginning of a demonstration."""


def read_demonstrations(spec: TrainSpec, questions: Sequence[Question], tokenizer: Any) -> list[TokenSequence]:  # noqa: ANN401 (any Hugging Face tokenizer)
    """Return the questions' demonstrations as tokens, end-of-sequence token included, in the questions' order.

    On `chains` a demonstrator writes one right solution a question, drawn by `spec.seed`; on `word_problems` some
    are wrong, and `sft.num_facts` facts follow. Those longer than `algorithm.max_response_tokens` are left out.

    Raises:
        DataError: A demonstration is missing, or too few are left for one batch.
    """
    limit = spec.algorithm.max_response_tokens
    rows = encode_demonstrations(spec, questions, tokenizer)
    fitting = [row for row in rows if all(turn.token_ids.size <= limit for turn in row)]
    if len(fitting) < len(rows):
        num_left_out = len(rows) - len(fitting)
        logger.warning(
            "%s: %d demonstrations longer than %d tokens are left out.", spec.data.source, num_left_out, limit
        )
    log_trained_tokens(fitting)
    kept = [turn for row in fitting for turn in row]
    num_facts = 0 if spec.sft is None else spec.sft.num_facts
    kept += _encode_facts(spec, num_facts, tokenizer) if num_facts else []
    if len(kept) < spec.algorithm.batch_size:
        raise DataError(
            f"{spec.data.source}: {len(kept)} demonstrations fit into algorithm.max_response_tokens ({limit}), "
            f"expected at least algorithm.batch_size ({spec.algorithm.batch_size}); raise one or lower the other."
        )
    return kept


def encode_demonstrations(spec: TrainSpec, questions: Sequence[Question], tokenizer: Any) -> list[list[TokenSequence]]:  # noqa: ANN401 (any Hugging Face tokenizer)
    """Return what is imitated of each question: its response, or each of the assistant's turns.

    Raises:
        DataError: A row has no demonstration, or one that cannot be trained.
    """
    if spec.data.source == WORD_PROBLEMS_SOURCE:
        # Some solutions are wrong, so the start that they teach leaves room.
        rng, writers = random.Random(spec.seed), word_problems.Demonstrators()
        stories = [Story.from_details(question.metadata) for question in questions]
        texts = [word_problems.write_demonstration(story, rng, writers) for story in stories]
    elif spec.data.source == CHAINS_SOURCE:
        texts = _write_texts(questions, spec.seed)
    else:
        return _read_rows(spec, questions, (spec.sft or SftSpec()).response_column, tokenizer)
    return [[encode_response(*pair, tokenizer)] for pair in zip(questions, texts, strict=True)]


def _read_rows(
    spec: TrainSpec,
    questions: Sequence[Question],
    column: str,
    tokenizer: Any,  # noqa: ANN401 (any Hugging Face tokenizer)
) -> list[list[TokenSequence]]:
    index_of = {question.metadata["row"]: index for index, question in enumerate(questions)}
    rows: list[list[TokenSequence]] = [[] for _ in questions]
    for number, raw in iterate_raw_rows(spec.data.source, spec.data.split, (column, "prompt")):
        index = index_of.get(number)
        if index is None:
            continue
        question, label = questions[index], f"{spec.data.source}, row {number}, {column}"
        prompt = _prompt_of(raw, question)
        turns = read_turns(raw.get(column), prompt, label)
        if is_one_text(turns):
            rows[index] = [encode_response(question, turns[0]["content"], tokenizer)]
        else:
            pairs = encode_turns(question, prompt, turns, tokenizer, label)
            rows[index] = [TokenSequence(*pair) for pair in pairs]
    return rows


def log_trained_tokens(rows: Sequence[Sequence[TokenSequence]]) -> None:
    """Log how many tokens of a row are imitated, and in how many turns."""
    counts = sorted(sum(turn.token_ids.size for turn in row) for row in rows)
    if counts:
        logger.info(
            "%d demonstrations, %d turns; trained tokens a row: %d to %d, median %d.",
            len(rows), sum(map(len, rows)), counts[0], counts[-1], counts[len(counts) // 2],
        )  # fmt: skip


def _encode_facts(spec: TrainSpec, num_facts: int, tokenizer: Any) -> list[TokenSequence]:  # noqa: ANN401 (any Hugging Face tokenizer)
    """Return facts whose result alone is imitated; they end without the token that ends an answer, as steps do."""
    data = spec.data
    message = {"role": "user", "content": FACTS_MESSAGE}
    _, prompt_ids = encode_messages(TemplateName(data.template), [message], tokenizer)

    def encode(text: str) -> list[int]:
        ids: list[int] = tokenizer.encode(text, add_special_tokens=False)
        return ids

    return [
        TokenSequence(
            np.asarray([*prompt_ids, *encode(f"{fact.calculation} =")], dtype=np.int32),
            np.asarray(encode(f" {fact.result}\n"), dtype=np.int32),
        )
        for fact in make_facts(num_facts, data.seed, data.min_operations, data.max_operations, data.number_size)
    ]


def _write_texts(questions: Sequence[Question], seed: int) -> list[str]:
    """Return a demonstrator's solution of each chain with the correct answer, even if its steps are wrong."""
    rng, demonstrators, texts = random.Random(seed), Demonstrators(), []
    for problem in map(read_problem, questions):
        text = write_demonstration(problem, rng, demonstrators)
        while not judge_response(problem, text).is_correct:
            text = write_demonstration(problem, rng, demonstrators)
        texts.append(text)
    return texts


def _read_texts(spec: TrainSpec, questions: Sequence[Question], column: str) -> list[str]:
    """Return an off-policy trajectory of each question, an empty text of one without."""
    if spec.data.source == CHAINS_SOURCE:
        return _write_texts(questions, spec.seed)
    index_of = {question.metadata["row"]: index for index, question in enumerate(questions)}
    texts = [""] * len(questions)
    for number, raw in iterate_raw_rows(spec.data.source, spec.data.split, (column, "prompt")):
        index = index_of.get(number)
        if index is not None and raw.get(column):
            label = f"{spec.data.source}, row {number}, {column}"
            texts[index] = one_text(read_turns(raw.get(column), _prompt_of(raw, questions[index]), label), label)
    return texts


def _prompt_of(raw: RawRow, question: Question) -> list[Message]:
    """Return the messages that a row asks; in other layouts than verl's the question is one."""
    given = raw.get("prompt")
    return (
        given if isinstance(given, list) else [{"role": "user", "content": str(question.metadata.get("question", ""))}]
    )


def encode_response(question: Question, text: str, tokenizer: Any) -> TokenSequence:  # noqa: ANN401 (any Hugging Face tokenizer)
    """Return a response behind its question's prompt as tokens, end-of-sequence token included."""
    before = question.prompt_text
    if before.rstrip().endswith(THOUGHT_START) and text.lstrip().startswith(THOUGHT_START):
        text = text.lstrip().removeprefix(THOUGHT_START)
        text = text.removeprefix("\n") if before.endswith("\n") else text
    if tokenizer.eos_token_id is None:
        raise DataError("its tokenizer names no eos_token, with which a demonstration ends; set one.", "model.source")
    ids = [*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id]
    return TokenSequence(question.prompt_ids, np.asarray(ids, dtype=np.int32))


def read_external(spec: TrainSpec, questions: Sequence[Question], tokenizer: Any) -> dict[int, Experience]:  # noqa: ANN401 (any Hugging Face tokenizer)
    """Return question index -> trajectory as a specification says; none where it uses no such trajectories.

    Rows of a column without one have none; those longer than `algorithm.max_response_tokens` are left out with a
    warning.

    Raises:
        TrainingError: The file, or a row, cannot be used.
        DataError: A row of the data set cannot be used, or none has a trajectory that fits.
    """
    limit, column = spec.algorithm.max_response_tokens, spec.external_column
    if spec.external_experience is not None:
        return load_external(spec.external_experience, questions, tokenizer, limit)
    if column is None:
        return {}
    external: dict[int, Experience] = {}
    num_long = 0
    texts = _read_texts(spec, questions, column)
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
    asked = {question.question_id: question for question in questions}
    external: dict[int, Experience] = {}
    try:
        # Not splitlines: JSON texts may hold other characters that end lines, such as U+2028.
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise TrainingError(
            f"{path} cannot be read ({error}); give a JSON-lines file.", "external_experience"
        ) from None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        question_id, response = _read_row(path, number, line)
        if question_id not in asked:
            continue
        ids = encode_response(asked[question_id], response, tokenizer).token_ids
        if ids.size > max_tokens:
            raise TrainingError(f"{path}, row {number}: response has {ids.size} tokens, expected at most {max_tokens}.")
        index = asked[question_id].index
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
        raise TrainingError(f"{path}, row {number}: expected texts that are not empty as question_id and response.")
    return question_id, check_text(response, f"{path}, row {number}, response")
