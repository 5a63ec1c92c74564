"""The time of day as a process first saw it, carried on by a clock that nobody sets.

What one process records is then in order and its durations are right, whatever happens to the system's clock.
"""

import time
from datetime import UTC, datetime, timedelta

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # Linux's counts while the machine sleeps
_BEGAN_AT = datetime.now(UTC)
_BEGAN_SECONDS = time.clock_gettime(_CLOCK)


def monotonic_utc_now() -> datetime:
    """Return the current moment in UTC, as if the system's clock had not been set since this process began."""
    return _BEGAN_AT + timedelta(seconds=time.clock_gettime(_CLOCK) - _BEGAN_SECONDS)
