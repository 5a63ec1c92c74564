"""What formats say of each token, brought to the generated tokens alone."""

import math
from collections.abc import Sequence
from typing import Any


def of_mask(values: Any, mask: Sequence[object] | None) -> list[Any] | None:  # noqa: ANN401 - what a file holds
    """Return the values of the tokens that the mask counts, all without a mask.

    None unless each of these tokens has a finite number.
    """
    if not isinstance(values, list) or not values or (mask is not None and len(values) != len(mask)):
        return None
    found = values if mask is None else [value for value, counts in zip(values, mask, strict=True) if counts]
    return found if all(isinstance(value, int | float) and math.isfinite(value) for value in found) else None


def only_value(values: Sequence[float] | None) -> float | None:
    """Return what all tokens share, such as an advantage that was spread over them; None where they differ."""
    return values[0] if values and len(set(values)) == 1 else None
