"""Causal attention over packed sequences, computed in blocks of columns."""

import torch
import torch.nn.functional as F

from jobs.engines.embedded.decoder_weights import HeadShape
from jobs.engines.embedded.packing import PackedSequences, QueryBlock


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


def attend_causally(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return causal attention (B, H, T, D) of queries (B, H, T, D) to keys and values (B, G, T, D)."""
    return F.scaled_dot_product_attention(
        queries, keys, values, is_causal=True, enable_gqa=queries.shape[1] != keys.shape[1]
    )
