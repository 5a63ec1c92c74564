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
        # A lookup, since its gradient adds up the copies of a token faster than that of an index does.
        padded = F.embedding(packed.sources, heads.flatten(1)).view(-1, *heads.shape[1:])
        outputs = []
        group_sizes = [group.num_rows * group.num_columns for group in packed.groups]
        for group, tokens in zip(packed.groups, torch.split(padded, group_sizes), strict=True):
            rows = tokens.view(group.num_rows, group.num_columns, *heads.shape[1:]).transpose(1, 2)
            attended = attend_causally(*torch.split(rows, sizes, dim=1))
            outputs.append(attended.transpose(1, 2).reshape(len(tokens), -1))
        return torch.cat(outputs)[packed.slots]


def attend_causally(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return causal attention (B, H, T, D) of queries (B, H, T, D) to keys and values (B, G, T, D)."""
    return F.scaled_dot_product_attention(
        queries, keys, values, is_causal=True, enable_gqa=queries.shape[1] != keys.shape[1]
    )
