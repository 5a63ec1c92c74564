"""Keys and values of prompts and generated tokens, in memory taken once."""

import torch

from jobs.engines.embedded.packing import index_tensor
from jobs.engines.embedded.shared_histories import Moves


class KvCache:
    """Keys and values (capacity, G, columns, D) a layer, of which the first `num_rows` rows are in use; none shrinks.

    Prompts stand in the first `num_prompt_columns`, each from column 0; generated tokens follow in columns that all
    rows share. `prompt_lengths` (U,) says where each row's prompt ends: the columns from there to the first generated
    token are never attended to.
    """

    def __init__(
        self, prompt_lengths: torch.Tensor, num_prompt_columns: int, capacity: int, num_new: int, dtype: torch.dtype
    ) -> None:
        self.num_columns = num_prompt_columns + num_new
        self.num_rows = prompt_lengths.shape[0]
        self.length = num_prompt_columns
        self.dtype = dtype
        self.keys: list[torch.Tensor] = []
        self.values: list[torch.Tensor] = []
        self._in_use: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]] = []
        self._capacity = capacity
        self._num_prompt_columns = num_prompt_columns
        self._prompt_lengths = prompt_lengths.new_zeros(capacity)
        self._prompt_lengths[: self.num_rows] = prompt_lengths
        columns = torch.arange(num_prompt_columns, device=prompt_lengths.device)
        is_gap = columns[None] >= prompt_lengths[:, None]
        self._gap_bias: torch.Tensor | None = None
        if bool(is_gap.any()):
            bias = torch.zeros(capacity, 1, 1, num_prompt_columns, device=prompt_lengths.device)
            bias[: self.num_rows, 0, 0].masked_fill_(is_gap, float("-inf"))
            self._gap_bias = bias

    @property
    def positions(self) -> torch.Tensor:
        """Position (num_rows,) of the next token of each row."""
        return self._prompt_lengths[: self.num_rows] + (self.length - self._num_prompt_columns)

    def add_prompts(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Add a layer: the first rows get the prompts' keys and values (U, G, P, D)."""
        for source, target in ((keys, self.keys), (values, self.values)):
            shape = (self._capacity, source.shape[1], self.num_columns, source.shape[3])
            cache = torch.empty(shape, dtype=self.dtype, device=source.device)
            cache[: self.num_rows, :, : self._num_prompt_columns] = source
            target.append(cache)
        self._in_use.append(self._views(len(self._in_use)))

    def attend(self, layer: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Store one new token a row and return its attention outputs (B, H * D) to all before it and itself."""
        end = self.length + 1
        used_keys, used_values, keys_by_head, values_by_head = self._in_use[layer]
        used_keys[:, :, self.length] = keys
        used_values[:, :, self.length] = values
        num_rows, num_kv_heads, _, head_dim = used_keys.shape
        per_kv_head = queries.reshape(num_rows * num_kv_heads, -1, head_dim) * head_dim**-0.5
        scores = torch.bmm(per_kv_head, keys_by_head[:, :end].transpose(1, 2)).float()
        if self._gap_bias is not None:
            by_row = scores.view(num_rows, num_kv_heads, -1, end)
            by_row[..., : self._num_prompt_columns] += self._gap_bias[:num_rows]
        weights = scores.softmax(-1).to(used_values.dtype)
        return torch.bmm(weights, values_by_head[:, :end]).view(num_rows, -1)

    def advance(self) -> None:
        """Go on to the next column once every layer has stored its token."""
        self.length += 1

    def copy_rows(self, moves: Moves) -> None:
        """Copy rows to others, and use as many as there are histories then."""
        if moves.sources.size:
            self._copy(moves)
        if self.num_rows != moves.num_histories:
            self.num_rows = moves.num_histories
            self._in_use = [self._views(layer) for layer in range(len(self.keys))]

    def _copy(self, moves: Moves) -> None:
        sources, targets = (index_tensor(rows, self._prompt_lengths.device) for rows in (moves.sources, moves.targets))
        for cache in (*self.keys, *self.values):
            cache[targets, :, : self.length] = cache[sources, :, : self.length]
        if self._gap_bias is not None:
            self._gap_bias[targets] = self._gap_bias[sources]
        self._prompt_lengths[targets] = self._prompt_lengths[sources]

    def _views(self, layer: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return keys and values (B, G, columns, D) of the rows in use, and both as (B * G, columns, D)."""
        keys, values = self.keys[layer][: self.num_rows], self.values[layer][: self.num_rows]
        return keys, values, keys.flatten(0, 1), values.flatten(0, 1)
