"""Which steps of an attempt lost their record, by the events around it."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

_MAX_RANGES = 8


class LostSteps:
    """Finds the numbers that are missing between the steps of each attempt."""

    def __init__(self) -> None:
        self._recorded: defaultdict[int, set[int]] = defaultdict(set)
        self._done: defaultdict[int, set[int]] = defaultdict(set)

    def observe(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Add events, in any order; an evaluation or checkpoint of a step comes after its record."""
        for event in events:
            if event["kind"] in ("step", "evaluation", "checkpoint") and "step" in event:
                steps = self._recorded if event["kind"] == "step" else self._done
                steps[event["attempt"]].add(event["step"])

    def describe(self, attempt: int) -> str:
        """Return the lost steps of an attempt in words, as `step 7` or `steps 7, 9 to 11`; else nothing."""
        recorded = self._recorded[attempt]
        steps = sorted(recorded | self._done[attempt]) if recorded else []
        ranges = []
        for i in range(1, len(steps)):
            first, last = steps[i - 1] + 1, steps[i] - (steps[i] in recorded)
            if first <= last:
                ranges.append(f"{first}" if first == last else f"{first} to {last}")
        if not ranges:
            return ""
        noun = "step" if len(ranges) == 1 and ranges[0].isdigit() else "steps"
        return f"{noun} {', '.join(ranges[:_MAX_RANGES])}{' and others' if len(ranges) > _MAX_RANGES else ''}"
