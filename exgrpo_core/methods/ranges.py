"""Which numbers a setting of a part can have, as its annotation says: `max_age: Count = 8`."""

import math
from dataclasses import dataclass
from typing import Annotated


@dataclass(frozen=True, slots=True)
class Range:
    """Finite numbers from `least` to `most`, or between `above` and `below`, which are not in it themselves."""

    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf
    below: float = math.inf
    is_whole: bool = False

    def __contains__(self, value: object) -> bool:
        """Return whether a value is a number that is allowed."""
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            return False
        is_inside = self.least <= value <= self.most and self.above < value < self.below
        return is_inside and not (self.is_whole and value % 1)

    def __str__(self) -> str:
        """Return what messages say was expected."""
        noun = "a whole number" if self.is_whole else "a number"
        limits = {"of at least": self.least, "above": self.above, "of at most": self.most, "below": self.below}
        words = [f"{word} {limit:g}" for word, limit in limits.items() if math.isfinite(limit)]
        if math.isfinite(self.most - self.least):
            words = [f"from {self.least:g} to {self.most:g}"]
        return f"{noun} {' and '.join(words)}" if words else "a finite number"


Count = Annotated[float, Range(least=1, is_whole=True)]
"""How many, such as steps or trajectories: 1, 2, 3 and so on."""
Share = Annotated[float, Range(least=0, most=1)]
Positive = Annotated[float, Range(above=0)]
NotNegative = Annotated[float, Range(least=0)]
