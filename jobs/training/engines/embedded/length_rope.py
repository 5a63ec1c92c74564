"""Rotary embeddings that depend on how long a sequence is: longrope (Phi-3.5, Phi-4-mini) and dynamic NTK.

transformers takes the longest row of a batch for the length of all, and with dynamic NTK keeps the embeddings of a long
batch for the short ones that follow. Here rows are computed together only where they have the same embeddings.
"""

from collections.abc import Sequence
from typing import Any

from torch import nn


class LengthRope:
    """The rotary embeddings of a model; without such a scaling all sequences have the same."""

    def __init__(self, model: nn.Module) -> None:
        modules = [(module, _types_of(module)) for module in model.modules()]
        self._dynamic: list[Any] = [module for module, types in modules if "dynamic" in types]
        borders = [int(module.config.max_position_embeddings) for module in self._dynamic]
        self.border: int | None = min(
            (_border_of(module) for module, types in modules if "longrope" in types), default=None
        )
        """Tokens of the longest sequence that has longrope's embeddings of short ones; None without longrope."""
        self._borders = borders + ([] if self.border is None else [self.border])

    def split(self, lengths: Sequence[int]) -> list[list[int]]:
        """Return the places of lengths, in tokens, whose sequences have the same embeddings."""
        groups: dict[int, list[int]] = {}
        for place, length in enumerate(lengths):
            groups.setdefault(self._regime(length), []).append(place)
        return list(groups.values())

    def _regime(self, length: int) -> int:
        is_long = length > min(self._borders, default=length)
        return 0 if not is_long else length if self._dynamic else 1

    def reset(self) -> None:
        """Forget the embeddings of a batch that was longer than the next."""
        for module in self._dynamic:
            for name, buffer in list(module.named_buffers(recurse=False)):
                if name.endswith("original_inv_freq"):
                    setattr(module, name.replace("original_", ""), buffer)


def _types_of(module: nn.Module) -> set[str]:
    types = getattr(module, "rope_type", None)
    return set(types.values()) if isinstance(types, dict) else {str(types)}


def _border_of(module: Any) -> int:  # noqa: ANN401 (each model has a class of its own)
    rope = module.config.rope_parameters
    found = (part.get("original_max_position_embeddings") for part in (rope, *rope.values()) if isinstance(part, dict))
    return min(int(border) for border in found if border)
