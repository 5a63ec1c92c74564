"""Where a study stands: the state of each cell from those of its runs, and what is still to be started."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.published import PendingRun, RunKey, Study
from db.rows.runs import RunRow

MISSING, DONE = "missing", "succeeded"
_LIVE = ("running", "starting", "stopping", "queued")
_BROKEN = ("failed", "lost", "stopped")


@dataclass(frozen=True, slots=True)
class CellState:
    """One cell with its wanted seeds in order, and the state of each."""

    cell: str
    paper_rows: tuple[str, ...]
    keys: tuple[RunKey, ...]
    states: tuple[str, ...]
    runs: tuple[RunRow | None, ...]

    @property
    def num_done(self) -> int:
        """Seeds whose run has succeeded."""
        return self.states.count(DONE)

    @property
    def state(self) -> str:
        """The state that stands for the cell: what is under way, else what broke, else whether all is there."""
        present = {*self.states}
        for state in (*_LIVE, *_BROKEN):
            if state in present:
                return state
        return DONE if present == {DONE} else MISSING

    @property
    def words(self) -> str:
        """The state in words, with how many seeds are done."""
        name = {DONE: "done", "starting": "running", "stopping": "running"}.get(self.state, self.state)
        return name if self.num_done in {0, len(self.states)} else f"{name}, {self.num_done}/{len(self.states)} seeds"


def cell_states(study: Study, keys: Sequence[RunKey], runs: Mapping[RunKey, RunRow]) -> list[CellState]:
    """Return the state of each cell that has wanted runs, in the order of the study."""
    rows: dict[str, dict[str, None]] = {}
    for table in study.tables:
        for row in table.rows:
            for cell in row.cells:
                rows.setdefault(cell, {})[row.row] = None
    found = []
    for name in dict.fromkeys(key.cell for key in keys):
        own = tuple(key for key in keys if key.cell == name)
        known = tuple(runs.get(key) for key in own)
        states = tuple(MISSING if run is None else run.status for run in known)
        found.append(CellState(name, tuple(rows.get(name, {})), own, states, known))
    return found


def pending(cells: Sequence[CellState]) -> list[PendingRun]:
    """Return the runs that are missing or broke off, seed by seed, so that a matrix cut short has even cells."""
    found = [
        PendingRun(key, run)
        for cell in cells
        for key, run, state in zip(cell.keys, cell.runs, cell.states, strict=True)
        if state == MISSING or state in _BROKEN
    ]
    return sorted(found, key=lambda own: own.key.seed)


def count_states(cells: Sequence[CellState]) -> Counter[str]:
    """Return how many runs are in each state."""
    return Counter(state for cell in cells for state in cell.states)
