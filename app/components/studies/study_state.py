"""The progress of a study: the state of each cell, computed from its runs, and the runs that are still to start."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.paper_and_studies import PendingRun, RunKey, Study
from db.rows.runs import BROKEN_STATES, RunRow

MISSING, FINISHED = "missing", "finished"
LIVE = ("running", "starting", "stopping", "queued")


@dataclass(frozen=True, slots=True)
class CellState:
    """One cell with its wanted seeds in order, and the state of each."""

    cell: str
    paper_rows: tuple[str, ...]
    keys: tuple[RunKey, ...]
    states: tuple[str, ...]
    runs: tuple[RunRow | None, ...]

    @property
    def num_finished(self) -> int:
        """Seeds whose run is finished."""
        return self.states.count(FINISHED)

    @property
    def state(self) -> str:
        """The state of the cell: that of a live run, else of a broken one, else finished or missing."""
        present = {*self.states}
        for state in (*LIVE, *BROKEN_STATES):
            if state in present:
                return state
        return FINISHED if present == {FINISHED} else MISSING

    @property
    def words(self) -> str:
        """The state in words, with how many seeds are finished."""
        name = {"starting": "running", "stopping": "running"}.get(self.state, self.state)
        return (
            name
            if self.num_finished in {0, len(self.states)}
            else f"{name}, {self.num_finished}/{len(self.states)} seeds"
        )


def cell_states(study: Study, keys: Sequence[RunKey], runs: Mapping[RunKey, RunRow]) -> list[CellState]:
    """Return the state of each cell that has wanted runs, in the order of the study."""
    rows: dict[str, dict[str, None]] = {}
    for table in study.tables:
        for row in table.rows:
            for cell in row.cells:
                rows.setdefault(cell, {})[row.row] = None
    keys_of: dict[str, list[RunKey]] = {}
    for key in keys:
        keys_of.setdefault(key.cell, []).append(key)
    states_of_cells = []
    for name, cell_keys in keys_of.items():
        known = tuple(runs.get(key) for key in cell_keys)
        states = tuple(MISSING if run is None else run.status for run in known)
        states_of_cells.append(CellState(name, tuple(rows.get(name, {})), tuple(cell_keys), states, known))
    return states_of_cells


def pending(cells: Sequence[CellState]) -> list[PendingRun]:
    """Return the missing, failed, lost and stopped runs, seed by seed, so that cells stay even if it is interrupted."""
    open_runs = [
        PendingRun(key, run)
        for cell in cells
        for key, run, state in zip(cell.keys, cell.runs, cell.states, strict=True)
        if state == MISSING or state in BROKEN_STATES
    ]
    return sorted(open_runs, key=lambda pending_run: pending_run.key.seed)


def one_run_of_each_cell(cells: Sequence[CellState]) -> list[str]:
    """Return the id of one run of each cell that has any with steps: that of its first seed."""
    begun = [[run.run_id for run in cell.runs if run is not None and run.step] for cell in cells]
    return [run_ids[0] for run_ids in begun if run_ids]


def count_states(cells: Sequence[CellState]) -> Counter[str]:
    """Return how many runs are in each state."""
    return Counter(state for cell in cells for state in cell.states)
