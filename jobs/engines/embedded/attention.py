"""Causal attention over packed sequences, computed in groups of rows of similar length."""

import torch
import torch.nn.functional as F

from jobs.engines.embedded.packing import PackedSequences


class PackedAttention:
    """Attention inside each sequence of a pack; tokens of different sequences never meet."""

    def __init__(self, packed: PackedSequences) -> None:
        self._packed = packed

    def __call__(self, layer: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:  # noqa: ARG002 - every layer attends alike
        """Return attention outputs (N, H * D)."""
        packed = self._packed
        sizes = [queries.shape[1], keys.shape[1], values.shape[1]]
        heads = torch.cat([queries, keys, values], dim=1)
        padded = heads.new_zeros(packed.num_slots, *heads.shape[1:]).index_copy(0, packed.slots, heads)
        outputs = []
        for group in packed.groups:
            num_tokens = group.num_rows * group.num_columns
            rows = padded[group.start : group.start + num_tokens]
            rows = rows.view(group.num_rows, group.num_columns, *heads.shape[1:]).transpose(1, 2)
            group_queries, group_keys, group_values = torch.split(rows, sizes, dim=1)
            attended = attend_causally(group_queries, group_keys, group_values)
            outputs.append(attended.transpose(1, 2).reshape(num_tokens, -1))
        return torch.cat(outputs)[packed.slots]


def attend_causally(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return causal attention (B, H, T, D) of queries (B, H, T, D) to keys and values (B, G, T, D)."""
    return F.scaled_dot_product_attention(
        queries, keys, values, is_causal=True, enable_gqa=queries.shape[1] != keys.shape[1]
    )
