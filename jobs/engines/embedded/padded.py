"""Any causal language model through its Hugging Face forward: slower, with the same results."""

import inspect
from collections.abc import Sequence

import numpy as np
import torch
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from exgrpo_core.types import Int32Array
from jobs.engines.embedded.decoding import DecodedRows, Transcript, is_end
from jobs.engines.embedded.packing import TokenSequence, split_by_length
from jobs.engines.embedded.sampling import Sampler
from jobs.engines.embedded.vocabulary import Scoring, TokenScores, score_targets


class PaddedBackend:
    """Padded rows through the model's forward; padding is masked and never scored."""

    def __init__(self, model: PreTrainedModel, compute_dtype: torch.dtype) -> None:
        self._model = model
        self._compute_dtype = compute_dtype
        self._takes_positions = "position_ids" in inspect.signature(model.forward).parameters

    @torch.inference_mode()
    def decode(
        self, prompts: Sequence[Int32Array], max_new_tokens: int, sampler: Sampler, end_token_ids: torch.Tensor
    ) -> DecodedRows:
        """Continue prompts, padded on the left."""
        device = end_token_ids.device
        token_ids, mask = _pad(prompts, device, is_left=True)
        is_done = torch.zeros(len(prompts), dtype=torch.bool, device=device)
        transcript = Transcript(len(prompts), max_new_tokens, device)
        past: Cache | None = None
        for _ in range(max_new_tokens):
            logits, past = self._forward(token_ids, mask, past_key_values=past, use_cache=True)
            draws = sampler.draw(logits[:, -1].float(), _unchanged, logits.shape[-1])
            transcript.add(draws)
            is_done |= is_end(draws.token_ids, end_token_ids)
            if bool(is_done.all()):
                break
            token_ids = draws.token_ids[:, None]
            mask = torch.cat([mask, mask.new_ones(len(prompts), 1)], dim=1)
        return transcript.rows()

    def score(self, sequences: Sequence[TokenSequence], scoring: Scoring) -> TokenScores:
        """Score response tokens of rows padded on the right."""
        device = self._model.device
        inputs = [np.concatenate([item.prompt_ids, item.token_ids[:-1]]) for item in sequences]
        token_ids, mask = _pad(inputs, device, is_left=False)
        logits, _ = self._forward(token_ids, mask, use_cache=False)
        is_response = mask.bool()
        for row, item in enumerate(sequences):
            is_response[row, : item.prompt_ids.size - 1] = False
        targets = np.concatenate([item.token_ids for item in sequences]).astype(np.int64)
        responses = logits[is_response]
        target_ids = torch.from_numpy(targets).to(device)
        return score_targets(responses, torch.Tensor.float, responses.shape[-1], target_ids, scoring)

    def batches(self, sequences: Sequence[TokenSequence], max_tokens: int) -> list[list[int]]:
        """Keep sequences of similar length together: others would be padded."""
        return split_by_length(sequences, max_tokens)

    def weights_changed(self) -> None:
        """Nothing is derived from the weights."""

    @property
    def cached_bytes_per_token(self) -> int:
        """Keys and values of every layer; every head is assumed to have separate ones."""
        config = self._model.config
        return int(2 * config.num_hidden_layers * config.hidden_size * self._compute_dtype.itemsize)

    @property
    def training_bytes_per_token(self) -> int:
        """Activations of every layer and float32 logits."""
        config = self._model.config
        return int(4 * (30 * config.num_hidden_layers * config.hidden_size + 4 * config.vocab_size))

    def _forward(
        self, token_ids: torch.Tensor, mask: torch.Tensor, **options: object
    ) -> tuple[torch.Tensor, Cache | None]:
        if self._takes_positions:
            positions = (mask.cumsum(-1) - 1).clamp(min=0)
            options["position_ids"] = positions[:, -token_ids.shape[1] :]
        is_mixed = self._compute_dtype is not torch.float32
        with torch.autocast(token_ids.device.type, self._compute_dtype, enabled=is_mixed):
            output = self._model(input_ids=token_ids, attention_mask=mask, **options)
        return output.logits, output.get("past_key_values")


def _pad(rows: Sequence[Int32Array], device: torch.device, is_left: bool) -> tuple[torch.Tensor, torch.Tensor]:
    longest = max(row.size for row in rows)
    token_ids = np.zeros((len(rows), longest), dtype=np.int64)
    mask = np.zeros((len(rows), longest), dtype=np.int64)
    for i, row in enumerate(rows):
        columns = slice(longest - row.size, longest) if is_left else slice(0, row.size)
        token_ids[i, columns] = row
        mask[i, columns] = 1
    return torch.from_numpy(token_ids).to(device), torch.from_numpy(mask).to(device)


def _unchanged(logits: torch.Tensor) -> torch.Tensor:
    return logits
