"""Keys and values of prompts and generated tokens, in memory taken once."""

import torch


class KvCache:
    """Keys and values (B, G, columns, D) a layer.

    Prompts stand in the first `num_prompt_columns`, each from column 0; generated tokens follow in columns that all
    rows share. `prompt_lengths` (B,) says where each row's prompt ends: the columns from there to the first generated
    token are never attended to.
    """

    def __init__(self, prompt_lengths: torch.Tensor, num_prompt_columns: int, num_new: int, dtype: torch.dtype) -> None:
        self.num_columns = num_prompt_columns + num_new
        self.length = num_prompt_columns
        self.dtype = dtype
        self.keys: list[torch.Tensor] = []
        self.values: list[torch.Tensor] = []
        self._num_prompt_columns = num_prompt_columns
        columns = torch.arange(num_prompt_columns, device=prompt_lengths.device)
        is_gap = columns[None] >= prompt_lengths[:, None]
        self._gap_bias: torch.Tensor | None = None
        if bool(is_gap.any()):
            bias = torch.zeros(is_gap.shape, dtype=torch.float32, device=prompt_lengths.device)
            self._gap_bias = bias.masked_fill_(is_gap, float("-inf"))[:, None, None]

    def add_prompts(self, keys: torch.Tensor, values: torch.Tensor, rows: torch.Tensor) -> None:
        """Add a layer: row i gets the prompt `rows[i]` of keys and values (U, G, P, D)."""
        for source, target in ((keys, self.keys), (values, self.values)):
            shape = (rows.shape[0], source.shape[1], self.num_columns, source.shape[3])
            cache = torch.empty(shape, dtype=self.dtype, device=source.device)
            cache[:, :, : self._num_prompt_columns] = source[rows]
            target.append(cache)

    def attend(self, layer: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Store one new token a row and return its attention outputs (B, H * D) to all before it and itself."""
        end = self.length + 1
        cached_keys, cached_values = self.keys[layer], self.values[layer]
        cached_keys[:, :, self.length] = keys
        cached_values[:, :, self.length] = values
        num_rows, num_kv_heads, _, head_dim = cached_keys.shape
        per_kv_head = queries.reshape(num_rows * num_kv_heads, -1, head_dim) * head_dim**-0.5
        scores = torch.bmm(per_kv_head, cached_keys.flatten(0, 1)[:, :end].transpose(1, 2)).float()
        if self._gap_bias is not None:
            by_row = scores.view(num_rows, num_kv_heads, -1, end)
            by_row[..., : self._num_prompt_columns] += self._gap_bias
        weights = scores.softmax(-1).to(cached_values.dtype)
        return torch.bmm(weights, cached_values.flatten(0, 1)[:, :end]).view(num_rows, -1)

    def advance(self) -> None:
        """Go on to the next column once every layer has stored its token."""
        self.length += 1

    def keep_rows(self, rows: torch.Tensor) -> None:
        """Drop all rows but `rows`."""
        for caches in (self.keys, self.values):
            for layer, cache in enumerate(caches):
                kept = torch.empty((rows.shape[0], *cache.shape[1:]), dtype=cache.dtype, device=cache.device)
                kept[:, :, : self.length] = cache[rows, :, : self.length]
                caches[layer] = kept
        if self._gap_bias is not None:
            self._gap_bias = self._gap_bias[rows]
