"""Which rows a later attempt repeated.

An attempt that resumes from the checkpoint at step s records step s + 1 first, so s follows from its events. Rows of
older attempts after s are kept and marked. The marks depend on the set of events alone, not on their order.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, select, update

from db.tables import models


class Supersession:
    """The last step of each attempt of a run that is not superseded."""

    def __init__(self, connection: Connection, run_key: int) -> None:
        self._connection = connection
        self._run_key = run_key
        attempts = models.attempts
        known = select(attempts.c.attempt, attempts.c.resumed_from_step).where(attempts.c.run_key == run_key)
        self._resumed_from: dict[int, int | None] = {row[0]: row[1] for row in connection.execute(known)}

    def note(self, events: Sequence[Mapping[str, Any]]) -> None:
        """Record from new events where attempts resumed, and mark the superseded rows."""
        for attempt, step in sorted(_resumptions(events).items()):
            known = self._resumed_from.get(attempt)
            if known is None or step < known:
                self._resumed_from[attempt] = step
                self._mark(attempt, step)

    def is_superseded(self, attempt: int, step: int) -> bool:
        """Return whether a later attempt repeated this step of an attempt."""
        return any(
            later > attempt and resumed is not None and step > resumed for later, resumed in self._resumed_from.items()
        )

    def _mark(self, attempt: int, step: int) -> None:
        attempts = models.attempts
        is_it = (attempts.c.run_key == self._run_key) & (attempts.c.attempt == attempt)
        self._connection.execute(update(attempts).where(is_it).values(resumed_from_step=step))
        for table in models.STEP_TABLES:
            is_older = (table.c.run_key == self._run_key) & (table.c.attempt < attempt) & (table.c.step > step)
            self._connection.execute(update(table).where(is_older).values(is_superseded=True))


def _resumptions(events: Sequence[Mapping[str, Any]]) -> dict[int, int]:
    """Return for each attempt after the first the step from which it resumed."""
    resumed_from: dict[int, int] = {}
    for event in events:
        if event["attempt"] == 1 or event["kind"] not in {"step", "evaluation"}:
            continue
        if event["kind"] == "evaluation" and event["step"] > 0:
            continue
        step = max(event["step"] - 1, 0)
        resumed_from[event["attempt"]] = min(step, resumed_from.get(event["attempt"], step))
    return resumed_from
