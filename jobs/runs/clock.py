"""The time of day when the process began, continued by a monotonic clock.

The events of one process are then in order, with right durations, even if the system's clock is set.
"""

import time
from datetime import UTC, datetime, timedelta

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # Linux's also counts while the machine sleeps
_BEGAN_AT = datetime.now(UTC)
_BEGAN_SECONDS = time.clock_gettime(_CLOCK)


def monotonic_utc_now() -> datetime:
    """Return the current moment in UTC, as if the system's clock had not been set since this process began."""
    return _BEGAN_AT + timedelta(seconds=time.clock_gettime(_CLOCK) - _BEGAN_SECONDS)
