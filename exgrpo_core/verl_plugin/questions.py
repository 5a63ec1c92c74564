"""What a run reads first: questions, with prompts as verl's agent loops encode them, and a model's end tokens."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from transformers import AutoConfig, GenerationConfig, PreTrainedTokenizerBase

from exgrpo_core.engine import describe_misfit, read_end_tokens
from exgrpo_core.errors import InputError
from exgrpo_core.types import Question

TENSOR_COLUMN = "dummy_tensor"
"""A column without meaning, by which verl keeps its batches from having no tensor."""
ONE_RESPONSE = "single_turn_agent"
"""verl's agent loop of one request, in whose place the plug-in has its own."""


def read_questions(
    rows: Iterable[Mapping[str, Any]], encode: Callable[[Any], list[int]], max_prompt_tokens: int
) -> list[Question]:
    """Return one question a row, whose metadata are the columns that graders read.

    Raises:
        InputError: A prompt is too long, or a row asks for several turns; the sentence names the row.
    """
    questions = []
    for index, row in enumerate(rows):
        columns = {name: value for name, value in row.items() if name != TENSOR_COLUMN}
        if columns.pop("agent_name", ONE_RESPONSE) != ONE_RESPONSE:
            raise InputError(
                f"data.train_files, row {index}: agent_name is {row['agent_name']}, but a replayed rollout is one "
                f"response; leave agent_name out, or set it to {ONE_RESPONSE}."
            )
        prompt_ids = np.asarray(encode(columns["raw_prompt"]), dtype=np.int32)
        answer = str((columns.get("reward_model") or {}).get("ground_truth", ""))
        questions.append(Question(index, _content_hash(prompt_ids, answer), prompt_ids, "", answer, columns))
    prompts = ((f"row {question.index}", question.prompt_ids.size) for question in questions)
    if misfit := describe_misfit(prompts, max_prompt_tokens):
        advice = "raise data.max_prompt_length, or set data.filter_overlong_prompts"
        raise InputError(f"data.train_files: {misfit}; {advice}.")
    return questions


def _content_hash(prompt_ids: np.ndarray[Any, Any], answer: str) -> str:
    content = json.dumps([prompt_ids.tolist(), answer])
    return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()


def find_end_tokens(source: str, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Return the tokens that end a response, by the model's generation settings, its configuration and its tokenizer.

    Raises:
        EngineError: The model names no end token, or something that is none.
    """
    config = AutoConfig.from_pretrained(source, trust_remote_code=False)
    try:
        generation = GenerationConfig.from_pretrained(source).eos_token_id
    except OSError:
        generation = None
    return read_end_tokens(source, generation, getattr(config, "eos_token_id", None), tokenizer.eos_token_id)
