"""The toy worker under a clock that a file sets: `clock` beside the runs holds by how many seconds it is off."""

import datetime
import sys
import time
from pathlib import Path

OFFSET_FILE = "clock"
_true_time = time.time


def offset_seconds() -> float:
    file = Path(sys.argv[1]).parent / OFFSET_FILE
    return float(file.read_text() or 0.0) if file.exists() else 0.0


class ShiftedDatetime(datetime.datetime):
    """A `datetime` whose `now` goes by the shifted clock."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> "ShiftedDatetime":
        return cls.fromtimestamp(_true_time() + offset_seconds(), tz)


def set_clocks() -> None:
    """Let every module of this project that asks for the time go by the shifted clock."""
    time.time = lambda: _true_time() + offset_seconds()
    for name, module in [*sys.modules.items()]:
        if name.startswith("jobs.") and hasattr(module, "datetime"):
            module.datetime = ShiftedDatetime


if __name__ == "__main__":
    from jobs.worker.__main__ import main
    from tests.jobs.supervisor.toy_worker import run_toy

    set_clocks()
    sys.exit(main(sys.argv[1:], {"embedded": lambda: run_toy}))
