"""What formats say of each token, brought to the generated tokens alone."""

from collections.abc import Sequence
from typing import Any


def of_mask(values: Any, mask: Sequence[object] | None) -> list[Any] | None:  # noqa: ANN401 - what a file holds
    """Return the values of the tokens that the mask counts, all without a mask; None unless each token has one."""
    if not isinstance(values, list) or not values:
        return None
    if mask is None:
        return values
    return [value for value, counts in zip(values, mask, strict=True) if counts] if len(values) == len(mask) else None


def only_value(values: Sequence[float] | None) -> float | None:
    """Return what all tokens share, such as an advantage that was spread over them; None where they differ."""
    return values[0] if values and len(set(values)) == 1 else None
