"""Delayed start: experience is collected and replayed once the policy solves enough (section 5.1)."""

from collections.abc import Mapping
from typing import Any


class DelayedStart:
    """A switch: it opens when one batch's Pass@1 is above `start_pass_rate`, and never closes again.

    Without a rate (None) it is open from the beginning.
    """

    def __init__(self, start_pass_rate: float | None) -> None:
        self._start_pass_rate = start_pass_rate
        self._is_open = start_pass_rate is None

    @property
    def is_open(self) -> bool:
        """Whether experience is collected and replayed."""
        return self._is_open

    def observe(self, pass_at_1: float) -> None:
        """Open the switch if one batch's Pass@1, in [0, 1], is above the rate."""
        if self._start_pass_rate is not None and pass_at_1 > self._start_pass_rate:
            self._is_open = True

    def state_dict(self) -> dict[str, Any]:
        """Return what `load_state_dict` needs."""
        return {"is_open": self._is_open}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved switch."""
        self._is_open = bool(state["is_open"])
