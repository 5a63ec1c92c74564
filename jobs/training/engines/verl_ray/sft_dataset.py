"""Demonstrations for verl's SFT trainer: the same tokens that the embedded engine imitates."""

from typing import Any

import pyarrow.parquet as pq
import torch
from torch.utils.data import Dataset

PROMPT_COLUMN = "prompt_ids"
RESPONSE_COLUMN = "response_ids"


class DemonstrationDataset(Dataset[dict[str, torch.Tensor]]):
    """Rows of prompt and response tokens; the loss counts response tokens only."""

    def __init__(self, parquet_files: list[str], **_unused: Any) -> None:
        """Read the rows; of verl's arguments only the files are used."""
        rows = [row for path in parquet_files for row in pq.read_table(path).to_pylist()]
        self._rows = [(row[PROMPT_COLUMN], row[RESPONSE_COLUMN]) for row in rows]

    def __len__(self) -> int:
        """Return the number of demonstrations."""
        return len(self._rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        """Return one demonstration, unpadded."""
        prompt, response = self._rows[index]
        return {
            "input_ids": torch.tensor(prompt + response, dtype=torch.long),
            "position_ids": torch.arange(len(prompt) + len(response), dtype=torch.long),
            "loss_mask": torch.tensor([0] * len(prompt) + [1] * len(response), dtype=torch.long),
        }
