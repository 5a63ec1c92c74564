"""Two ways to compute a policy: our decoder for architectures it knows, else the model's Hugging Face forward."""

import inspect
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from exgrpo.jobs.training.engines.embedded.decoder import Decoder, HeadShape
from exgrpo.jobs.training.engines.embedded.decoding import DecodedRows, Transcript, decode, is_end
from exgrpo.jobs.training.engines.embedded.length_rope import LengthRope
from exgrpo.jobs.training.engines.embedded.packing import (
    NUM_BLOCKS,
    PackedSequences,
    QueryBlock,
    TokenSequence,
    pack_sequences,
    split_by_length,
    split_by_prompt,
)
from exgrpo.jobs.training.engines.embedded.sampling import Sampler, Scoring, TokenScores, score_targets
from exgrpo_core.types import Int32Array


class PackedAttention:
    """Attention inside each sequence of a pack; tokens of different sequences never meet."""

    def __init__(self, packed: PackedSequences, shape: HeadShape, dtype: torch.dtype) -> None:
        device = packed.slots.device
        self._packed = packed
        self._shape = shape
        # A CPU's gradient of attention takes twice the time in bfloat16, in which it is no product of matrices.
        self._dtype = torch.float32 if device.type == "cpu" and dtype == torch.bfloat16 else dtype
        self._num_queries = [block.num_rows * (block.end - block.first) for block in packed.blocks]
        self._num_keys = [block.num_rows * block.end for block in packed.blocks]
        # As numbers: torch would convert booleans again for each layer, and keep all copies.
        self._biases = [_causal_bias(block, self._dtype, device) for block in packed.blocks]
        self.repeats_heads = device.type != "cpu" and shape.num_heads != shape.num_kv_heads
        """Whether keys and values are repeated for each query head: no fast CUDA kernel has a bias and shared ones."""

    def __call__(self, layer: int, heads: torch.Tensor) -> torch.Tensor:  # noqa: ARG002 - every layer attends alike
        """Return attention outputs (N, H * D)."""
        packed, shape = self._packed, self._shape
        query_heads, key_heads = torch.split(heads.to(self._dtype), [shape.num_heads, 2 * shape.num_kv_heads], dim=1)
        # Lookups, since their gradient adds up the copies of a token faster than that of an index does.
        queries = torch.split(F.embedding(packed.queries, query_heads.flatten(1)), self._num_queries)
        keys_values = torch.split(F.embedding(packed.keys, key_heads.flatten(1)), self._num_keys)
        parts = zip(packed.blocks, queries, keys_values, self._biases, strict=True)
        return torch.cat([self._attend_side_by_side(*part) for part in parts])[packed.slots].to(heads.dtype)

    def _attend_side_by_side(
        self, block: QueryBlock, queries: torch.Tensor, keys_values: torch.Tensor, bias: torch.Tensor
    ) -> torch.Tensor:
        shape = self._shape
        by_head = queries.view(block.num_rows, -1, shape.num_heads, shape.head_dim).transpose(1, 2)
        both = keys_values.view(block.num_rows, block.end, -1, shape.head_dim).transpose(1, 2)
        if self.repeats_heads:
            both = both.repeat_interleave(shape.num_heads // shape.num_kv_heads, dim=1)
        keys, values = both.chunk(2, dim=1)
        is_grouped = keys.shape[1] != shape.num_heads
        attended = F.scaled_dot_product_attention(by_head, keys, values, attn_mask=bias, enable_gqa=is_grouped)
        return attended.transpose(1, 2).reshape(queries.shape)


def _causal_bias(block: QueryBlock, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return 0 for the columns (columns of the block, `end`) that a query sees, up to its column, and else -inf."""
    size = (block.end - block.first, block.end)
    return torch.full(size, float("-inf"), dtype=dtype, device=device).triu_(block.first + 1)


class PackedBackend:
    """Unpadded sequences through our decoder."""

    def __init__(self, decoder: Decoder, checkpoints_gradients: bool) -> None:
        self._decoder = decoder
        self._checkpoints_gradients = checkpoints_gradients

    def decode(
        self, prompts: Sequence[Int32Array], max_new_tokens: int, sampler: Sampler, end_token_ids: torch.Tensor
    ) -> DecodedRows:
        """Continue prompts; each distinct prefix is computed once."""
        return decode(self._decoder, prompts, max_new_tokens, sampler, end_token_ids)

    def score(self, sequences: Sequence[TokenSequence], scoring: Scoring) -> TokenScores:
        """Score response tokens; each distinct prefix goes through the model, and the output embedding, once."""
        decoder = self._decoder
        packed = pack_sequences(sequences, decoder.device)
        decoder.prepare_positions(packed.longest)
        hidden = decoder.run(
            packed.input_ids,
            packed.positions,
            PackedAttention(packed, decoder.shape, decoder.compute_dtype),
            selected=packed.predictors,
            is_checkpointed=self._checkpoints_gradients,
        )
        normed = decoder.final_norm(hidden)
        scores = score_targets(normed, decoder.logits, decoder.vocabulary_size, packed.target_ids, scoring)
        return scores.take(packed.responses)

    def batches(self, sequences: Sequence[TokenSequence], max_tokens: int) -> list[list[int]]:
        """Keep sequences of one prompt together: it goes through the model once a batch."""
        return split_by_prompt(sequences, max_tokens)

    def weights_changed(self) -> None:
        """Forget the decoder's copies of weights."""
        self._decoder.weights_changed()

    @property
    def cached_bytes_per_token(self) -> int:
        """Keys and values of every layer."""
        shape = self._decoder.shape
        return 2 * self._decoder.num_layers * shape.num_kv_heads * shape.head_dim * self._decoder.compute_dtype.itemsize

    @property
    def training_bytes_per_token(self) -> int:
        """Activations kept for the backward pass: every layer's, or one layer's and each one's input."""
        config, shape = self._decoder.model.config, self._decoder.shape
        # Each block of columns has a copy of the keys and values before it, about half of all on average; on a GPU one
        # for each head.
        num_heads = shape.num_kv_heads if self._decoder.device.type == "cpu" else shape.num_heads
        num_copied = (NUM_BLOCKS + 1) * num_heads * shape.head_dim
        layer = 4 * (14 * config.hidden_size + 4 * config.intermediate_size + num_copied)
        if self._checkpoints_gradients:
            return int(layer + 4 * config.hidden_size * self._decoder.num_layers)
        return int(layer * self._decoder.num_layers)


class PaddedBackend:
    """Padded rows through the model's forward; padding is masked and never scored."""

    def __init__(self, model: PreTrainedModel, compute_dtype: torch.dtype) -> None:
        self._model = model
        self._compute_dtype = compute_dtype
        self._takes_positions = "position_ids" in inspect.signature(model.forward).parameters
        self._rope = LengthRope(model)

    @torch.inference_mode()
    def decode(
        self, prompts: Sequence[Int32Array], max_new_tokens: int, sampler: Sampler, end_token_ids: torch.Tensor
    ) -> DecodedRows:
        """Continue prompts, padded on the left; those with other rotary embeddings are another batch."""
        groups = [torch.tensor(rows) for rows in self._rope.split([prompt.size for prompt in prompts])]
        parts = [
            self._decode([prompts[i] for i in rows], max_new_tokens, sampler.of_rows(rows), end_token_ids)
            for rows in groups
        ]
        order = torch.cat(groups).argsort()
        fields = ("token_ids", "log_probs", "entropies")
        return DecodedRows(*(torch.cat([getattr(part, field) for part in parts])[order] for field in fields))

    def _decode(
        self, prompts: Sequence[Int32Array], max_new_tokens: int, sampler: Sampler, end_token_ids: torch.Tensor
    ) -> DecodedRows:
        device = end_token_ids.device
        token_ids, mask = _pad(prompts, device, is_left=True)
        is_done = torch.zeros(len(prompts), dtype=torch.bool, device=device)
        transcript = Transcript(len(prompts), max_new_tokens, device)
        past: Cache | None = None
        for step in range(max_new_tokens):
            logits, past = self._forward(token_ids, mask, past_key_values=past, use_cache=True)
            draws = sampler.of_rows(slice(None), step).draw(logits[:, -1].float(), _unchanged, logits.shape[-1])
            transcript.add(draws)
            is_done |= is_end(draws.token_ids, end_token_ids)
            if bool(is_done.all()):
                break
            token_ids = draws.token_ids[:, None]
            mask = torch.cat([mask, mask.new_ones(len(prompts), 1)], dim=1)
        return transcript.rows()

    def score(self, sequences: Sequence[TokenSequence], scoring: Scoring) -> TokenScores:
        """Score response tokens of rows padded on the right; those with other rotary embeddings are another batch."""
        device = self._model.device
        # A row's last token predicts nothing needed, but counts where rotary embeddings depend on the length.
        rows = [np.concatenate([item.prompt_ids, item.token_ids]) for item in sequences]
        logits: list[torch.Tensor] = [torch.empty(0)] * len(rows)
        for group in self._rope.split([row.size for row in rows]):
            token_ids, mask = _pad([rows[i] for i in group], device, is_left=False)
            outputs, _ = self._forward(token_ids, mask, use_cache=False)
            for i, output in zip(group, outputs, strict=True):
                first = sequences[i].prompt_ids.size - 1
                logits[i] = output[first : first + sequences[i].token_ids.size]
        targets = np.concatenate([item.token_ids for item in sequences]).astype(np.int64)
        responses = torch.cat(logits)
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
        config = self._model.config.get_text_config()
        return int(2 * config.num_hidden_layers * config.hidden_size * self._compute_dtype.itemsize)

    @property
    def training_bytes_per_token(self) -> int:
        """Activations of every layer and float32 logits."""
        config = self._model.config.get_text_config()
        return int(4 * (30 * config.num_hidden_layers * config.hidden_size + 4 * config.vocab_size))

    def _forward(
        self, token_ids: torch.Tensor, mask: torch.Tensor, **options: object
    ) -> tuple[torch.Tensor, Cache | None]:
        if self._takes_positions:
            positions = (mask.cumsum(-1) - 1).clamp(min=0)
            options["position_ids"] = positions[:, -token_ids.shape[1] :]
        self._rope.reset()
        is_mixed = self._compute_dtype is not torch.float32
        with torch.autocast(token_ids.device.type, self._compute_dtype, enabled=is_mixed):
            output = self._model(input_ids=token_ids, attention_mask=mask, **options)
        return output.logits, output.get("past_key_values")


Backend = PackedBackend | PaddedBackend
"""Computes a policy's tokens and scores; results do not depend on which other rows are in the batch."""


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
