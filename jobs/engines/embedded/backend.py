"""Two ways to compute a policy: our decoder for architectures it knows, else the model's Hugging Face forward."""

from collections.abc import Sequence
from typing import Protocol

import torch

from exgrpo_core.types import Int32Array
from jobs.engines.embedded.attention import PackedAttention
from jobs.engines.embedded.decoder import Decoder
from jobs.engines.embedded.decoding import DecodedRows, decode
from jobs.engines.embedded.packing import NUM_BLOCKS, TokenSequence, pack_sequences, split_by_prompt
from jobs.engines.embedded.sampling import Sampler
from jobs.engines.embedded.vocabulary import Scoring, TokenScores, score_targets


class Backend(Protocol):
    """Computes a policy's tokens and scores; results do not depend on which other rows are in the batch."""

    def decode(
        self, prompts: Sequence[Int32Array], max_new_tokens: int, sampler: Sampler, end_token_ids: torch.Tensor
    ) -> DecodedRows:
        """Continue prompts until an end token or `max_new_tokens`."""
        ...

    def score(self, sequences: Sequence[TokenSequence], scoring: Scoring) -> TokenScores:
        """Score all response tokens (R,), in order, with gradients under grad mode."""
        ...

    def batches(self, sequences: Sequence[TokenSequence], max_tokens: int) -> list[list[int]]:
        """Return indexes of `sequences` in batches for `score`, each of about `max_tokens` inputs at most."""
        ...

    def weights_changed(self) -> None:
        """Forget everything derived from the weights."""
        ...

    @property
    def cached_bytes_per_token(self) -> int:
        """Bytes of memory that generation needs for each token of each row."""
        ...

    @property
    def training_bytes_per_token(self) -> int:
        """Approximate bytes of memory that a forward pass with gradients needs for each token."""
        ...


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
