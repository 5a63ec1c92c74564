"""Keys and values of prompts and generated tokens, in memory that is allocated once."""

import torch

from jobs.engines.embedded.decoder_weights import HeadShape
from jobs.engines.embedded.packing import index_tensor
from jobs.engines.embedded.shared_prefixes import RowCopies


class KvCache:
    """Keys and values (2, capacity, G, columns, D) a layer; the first `num_rows` rows are in use, and none shrinks.

    Prompts are in the first `num_prompt_columns`, each from column 0; generated tokens follow in columns that all
    rows share. `prompt_lengths` (U,) says where each row's prompt ends: the columns from there to the first generated
    token are never attended to.
    """

    def __init__(
        self,
        prompt_lengths: torch.Tensor,
        *,
        num_prompt_columns: int,
        capacity: int,
        num_new: int,
        shape: HeadShape,
        num_layers: int,
        dtype: torch.dtype,
    ) -> None:
        device = prompt_lengths.device
        self.num_rows = prompt_lengths.shape[0]
        self.length = num_prompt_columns
        self._shape = shape
        self._num_prompt_columns = num_prompt_columns
        num_columns = num_prompt_columns + num_new
        size = (2, capacity, shape.num_kv_heads, num_columns, shape.head_dim)
        self._layers = [torch.empty(size, dtype=dtype, device=device) for _ in range(num_layers)]
        self._prompt_lengths = prompt_lengths.new_zeros(capacity)
        self._prompt_lengths[: self.num_rows] = prompt_lengths
        is_gap = torch.arange(num_prompt_columns, device=device) >= prompt_lengths[:, None]
        self._has_gaps = bool(is_gap.any())
        # (capacity, G, 1, columns): added to the scores of each row and its heads of keys, one product each.
        self._bias = torch.zeros(capacity, shape.num_kv_heads, 1, num_columns, dtype=dtype, device=device)
        self._bias[: self.num_rows, ..., :num_prompt_columns].masked_fill_(is_gap[:, None, None], float("-inf"))
        self._use_rows(self.num_rows)

    @property
    def positions(self) -> torch.Tensor:
        """Position (num_rows,) of the next token of each row."""
        return self._prompt_lengths[: self.num_rows] + (self.length - self._num_prompt_columns)

    def store_prompts(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Give the rows in use the prompts' keys and values (U, G, P, D)."""
        for source, target in zip((keys, values), self._layers[layer], strict=True):
            target[: self.num_rows, :, : self._num_prompt_columns] = source

    def attend(self, layer: int, heads: torch.Tensor) -> torch.Tensor:
        """Store one new token a row, `heads` (B, H + 2 G, D), and return its attention to all before it and itself."""
        shape, end = self._shape, self.length + 1
        in_use, keys, values = self._in_use[layer]
        queries = heads[:, : shape.num_heads].reshape(keys.shape[0], -1, shape.head_dim)
        new = heads[:, shape.num_heads :].view(self.num_rows, 2, shape.num_kv_heads, shape.head_dim)
        in_use[:, :, :, self.length] = new.transpose(0, 1)
        weights = self._scores(queries, keys[:, :end]).float().softmax(-1).to(values.dtype)
        return torch.bmm(weights, values[:, :end]).view(self.num_rows, -1)

    def _scores(self, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        """Return scaled scores (B G, H / G, columns) of queries (B G, H / G, D) and keys (B G, columns, D)."""
        bias = self._bias_in_use[..., : keys.shape[1]]
        scale = {"beta": int(self._has_gaps), "alpha": self._shape.head_dim**-0.5}
        if keys.device.type == "cpu" and keys.dtype == torch.bfloat16:
            # A product with transposed keys would copy them all first.
            return torch.baddbmm(bias.mT, keys, queries.mT, **scale).mT
        return torch.baddbmm(bias, queries, keys.mT, **scale)

    def advance(self) -> None:
        """Move to the next column, once every layer has stored its token."""
        self.length += 1

    def copy_rows(self, copies: RowCopies) -> None:
        """Copy rows to others, then use one row a prefix."""
        if copies.sources.size:
            self._copy(copies)
        if self.num_rows != copies.num_prefixes:
            self._use_rows(copies.num_prefixes)

    def _copy(self, copies: RowCopies) -> None:
        sources, targets = (
            index_tensor(rows, self._prompt_lengths.device) for rows in (copies.sources, copies.targets)
        )
        for layer in self._layers:
            if layer.device.type == "cpu":
                # NumPy copies runs of columns, torch one number at a time. NumPy has no bfloat16, so as bytes.
                rows = layer.view(torch.uint8).numpy()
                rows[:, copies.targets, :, : self.length] = rows[:, copies.sources, :, : self.length]
            else:
                layer[:, targets, :, : self.length] = layer[:, sources, :, : self.length]
        if self._has_gaps:
            self._bias[targets] = self._bias[sources]
        self._prompt_lengths[targets] = self._prompt_lengths[sources]

    def _use_rows(self, num_rows: int) -> None:
        """Use the first `num_rows` rows."""
        self.num_rows = num_rows
        used = [layer[:, :num_rows] for layer in self._layers]
        self._in_use = [(both, *both.flatten(1, 2)) for both in used]
        self._bias_in_use = self._bias[:num_rows].flatten(0, 1)
