"""Correction of p-values where several differences are tested at once."""

from collections.abc import Sequence


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values by Holm's correction, in the same order: any below a level is one error at that level in all.

    Source: Holm, "A simple sequentially rejective multiple test procedure", 1979.
    """
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = largest
    return corrected
