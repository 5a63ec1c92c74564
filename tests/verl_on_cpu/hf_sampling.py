"""Batched sampling with a Hugging Face model, each row with a separate random generator."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """One response to sample; temperature 0 is greedy."""

    prompt_ids: list[int]
    temperature: float
    max_new_tokens: int
    seed: int
    end_token_ids: frozenset[int]


@dataclass(slots=True)
class _Row:
    request: SampleRequest
    generator: torch.Generator
    token_ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    is_over: bool = False


@torch.inference_mode()
def sample_responses(model: Any, requests: Sequence[SampleRequest]) -> list[tuple[list[int], list[float]]]:
    """Return token ids (T,) and log-probs (T,) of a response a request, end-of-sequence token included.

    A row's draws depend on its request alone, up to rounding in batches of different shape.
    """
    rows = [_Row(request, torch.Generator().manual_seed(request.seed)) for request in requests]
    input_ids, attention_mask = _pad_left([request.prompt_ids for request in requests])
    positions = (attention_mask.cumsum(1) - 1).clamp(min=0)
    temperatures = torch.tensor([request.temperature or 1.0 for request in requests])[:, None]
    cache = None
    while not all(row.is_over for row in rows):
        output = model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        cache = output.past_key_values
        log_probs = torch.log_softmax(output.logits[:, -1].float() / temperatures, dim=-1)
        input_ids = torch.tensor([[_draw(row, prob)] for row, prob in zip(rows, log_probs, strict=True)])
        attention_mask = torch.cat([attention_mask, attention_mask.new_ones(len(rows), 1)], dim=1)
        positions = positions[:, -1:] + 1
    return [(row.token_ids, row.log_probs) for row in rows]


def _draw(row: _Row, log_probs: torch.Tensor) -> int:
    if row.is_over:
        return 0
    if row.request.temperature == 0.0:
        token = int(log_probs.argmax())
    else:
        token = int(torch.multinomial(log_probs.exp(), 1, generator=row.generator))
    row.token_ids.append(token)
    row.log_probs.append(float(log_probs[token]))
    row.is_over = token in row.request.end_token_ids or len(row.token_ids) >= row.request.max_new_tokens
    return token


def _pad_left(prompts: Sequence[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return token ids and attention mask, each (rows, longest prompt)."""
    longest = max(len(prompt) for prompt in prompts)
    input_ids = torch.zeros(len(prompts), longest, dtype=torch.long)
    attention_mask = torch.zeros_like(input_ids)
    for row, prompt in enumerate(prompts):
        input_ids[row, longest - len(prompt) :] = torch.tensor(prompt)
        attention_mask[row, longest - len(prompt) :] = 1
    return input_ids, attention_mask
