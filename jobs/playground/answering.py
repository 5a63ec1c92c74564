"""Answers of a model to one prompt, with log-probs and entropies of each token."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from exgrpo_core.errors import InputError
from jobs.engines.embedded.generation import GeneratedResponse, generate
from jobs.engines.embedded.model import PolicyModel, load_policy, resolve_device
from jobs.engines.embedded.sampling import Sampler
from jobs.playground.targets import ChatModel
from jobs.pretrained.conversion import prepare_model
from jobs.training.templates import TemplateName, encode_messages


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """What is asked; None is as in the model's run."""

    prompt: str
    num_samples: int = 1
    temperature: float | None = None
    max_response_tokens: int | None = None
    seed: int = 0


def answer(model: ChatModel, request: ChatRequest) -> Iterator[dict[str, object]]:
    """Yield the whole prompt as the model gets it, then each answer, as records for JSON.

    The model is loaded here and is freed when the last answer was given.

    Raises:
        EngineError: The model cannot be loaded.
        ModelSourceError: A GGUF file cannot be downloaded or converted.
        InputError: The prompt is empty or too long, or the tokenizer refuses it.
    """
    if request.prompt != request.prompt.encode(errors="ignore").decode():
        raise InputError("prompt: holds half of a character; remove it.")
    policy = load_policy(prepare_model(model.source), resolve_device("auto"), model.revision)
    limit = request.max_response_tokens or model.max_response_tokens
    try:
        messages = [{"role": "user", "content": request.prompt}]
        text, ids = encode_messages(TemplateName(model.template), messages, policy.tokenizer)
    except ValueError as error:
        raise InputError(f"prompt: {error}") from error
    context = policy.context_tokens
    if not ids or (context is not None and len(ids) + limit > context):
        raise InputError(
            f"prompt: expected tokens that fit with {limit} of the answer into the model's context of {context}, got "
            f"{len(ids)}; change the prompt or lower the answer's length."
        )
    yield {"prompt": text, "num_prompt_tokens": len(ids)}
    temperature = model.temperature if request.temperature is None else request.temperature
    sampler = Sampler(temperature, torch.Generator(policy.device).manual_seed(request.seed))
    prompts = [np.asarray(ids, dtype=np.int32)] * request.num_samples
    for number, response in enumerate(generate(policy, prompts, limit, sampler), start=1):
        yield {"sample": number, **_record(policy, response)}


def _record(policy: PolicyModel, response: GeneratedResponse) -> dict[str, object]:
    ids = response.token_ids.tolist()
    return {
        "text": policy.tokenizer.decode(ids, skip_special_tokens=True),
        "is_truncated": response.is_truncated,
        "token_ids": ids,
        "entropies": response.entropies.tolist(),
        "log_probs": response.log_probs.tolist(),
        "texts": _token_texts(policy, ids),
    }


def _token_texts(policy: PolicyModel, token_ids: list[int]) -> list[str]:
    """Return the text that each token adds; the last token of a character has its text."""
    from tokenizers.decoders import DecodeStream  # type: ignore[import-untyped]

    stream = DecodeStream(skip_special_tokens=False)
    return [stream.step(policy.tokenizer._tokenizer, token_id) or "" for token_id in token_ids]
