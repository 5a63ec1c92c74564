"""A study as a matrix of the state of each cell and seed, and the launch of its missing runs."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from exgrpo.app.components.widgets import address_choice, data_table, grid, notice, run_state
from exgrpo.app.formats import escape_control_characters, literal
from exgrpo.app.settings import runs_root
from exgrpo.db.rows.runs import RunRow
from exgrpo.jobs.actions.studies import running
from exgrpo.jobs.actions.studies.definition import RunKey, Scale, Study
from exgrpo.jobs.actions.studies.running import PendingRun, estimate_hours
from exgrpo_core.errors import UserError
from exgrpo_core.recording.run_status import BROKEN, LIVE, RunStatus

MISSING = "missing"


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
        return self.states.count(RunStatus.FINISHED)

    @property
    def state(self) -> str:
        """The state of the cell: that of a live run, else of a broken one, else finished or missing."""
        present = {*self.states}
        unfinished = (state for state in RunStatus if state in present and state is not RunStatus.FINISHED)
        return next(unfinished, RunStatus.FINISHED if present == {RunStatus.FINISHED} else MISSING)

    @property
    def words(self) -> str:
        """The state in words, with how many seeds are finished."""
        name = RunStatus.RUNNING if self.state in {RunStatus.STARTING, RunStatus.STOPPING} else self.state
        num_seeds = len(self.states)
        return name if self.num_finished in {0, num_seeds} else f"{name}, {self.num_finished}/{num_seeds} seeds"


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
        if state == MISSING or state in BROKEN
    ]
    return sorted(open_runs, key=lambda pending_run: pending_run.key.seed)


def one_run_of_each_cell(cells: Sequence[CellState]) -> list[str]:
    """Return the id of one run of each cell that has any with steps: that of its first seed."""
    begun = [[run.run_id for run in cell.runs if run is not None and run.step] for cell in cells]
    return [run_ids[0] for run_ids in begun if run_ids]


_ROWS_IN_VIEW = 15
"""More scroll, so that the launch below stays near."""
_STATES = run_state.STATES | {MISSING: (MISSING, run_state.FAINT, "")}


def show(cells: Sequence[CellState], name: str) -> None:
    """Show the matrix; a click on a seed leads to its run."""
    frame = table(cells)
    caption = "One column per seed; click a state to open its run, a cell for the list of its runs"
    data_table.show_caption(caption, frame, f"{name}-matrix")
    alt = "Cells of the study with the state of each seed"
    clicks = grid.Clicks([cell.cell for cell in cells])
    click = grid.draw(frame, f"{name}-matrix", alt, _columns(cells), _ROWS_IN_VIEW, clicks).click
    if click:
        _open(cells[click.row], click.column)


def table(cells: Sequence[CellState]) -> pd.DataFrame:
    """Return one row per cell: the paper's rows that it reproduces, if any cell has one, and the state of each seed.

    All cells of a study have the same seeds.
    """
    frame: dict[str, Sequence[object]] = {
        "Cell": [cell.cell for cell in cells],
        "Paper's row": [" / ".join(cell.paper_rows) or "no row of the paper" for cell in cells],
        "State": [cell.words for cell in cells],
    }
    if not any(cell.paper_rows for cell in cells):
        del frame["Paper's row"]
    for index, key in enumerate(cells[0].keys):
        frame[f"Seed {key.seed}"] = [[_STATES.get(cell.states[index], ("unknown",))[0]] for cell in cells]
    return pd.DataFrame(frame)


def _open(cell: CellState, column: str) -> None:
    seeds = {f"Seed {key.seed}": run for key, run in zip(cell.keys, cell.runs, strict=True)}
    if column not in seeds and any(cell.runs):
        tags = [tag for tag in cell.keys[0].tags if not tag.startswith("seed:")]
        st.switch_page("app_pages/runs.py", query_params={"q": " ".join(tags)})
    run = seeds.get(column)
    if run is not None:
        st.switch_page("app_pages/run.py", query_params={"run": run.run_id})


def _columns(cells: Sequence[CellState]) -> dict[str, ColumnConfig]:
    config = st.column_config
    seeds = {f"Seed {key.seed}": run_state.column(_STATES, 78, f"Runs with seed {key.seed}") for key in cells[0].keys}
    return {
        "Cell": config.TextColumn(width=204, pinned=True),
        "Paper's row": config.TextColumn(width=150),
        "State": config.TextColumn(width=136),
        **seeds,
    }


MAX_LAUNCHED = 200
"""Runs that one click queues: more would keep the page waiting for minutes."""
_LAUNCHED = "study-launched"


def seeds(study: Study, scale: Scale) -> int:
    """Show the number of seeds per cell and return it."""
    default = 1 if scale is Scale.PAPER else study.num_seeds
    return int(st.number_input("Seeds per cell", 1, 64, default, key=f"seeds-{scale}", bind="query-params", width=130))


def show_launch(study: Study, scale: Scale, cells: Sequence[CellState]) -> None:
    """Show the choice of cells and the button that queues their missing runs."""
    names = [cell.cell for cell in cells]
    chosen = address_choice.select_several(
        "Only these cells", dict(zip(names, names, strict=True)), "cells", [], "All cells"
    )
    wanted = [cell for cell in cells if not chosen or cell.cell in chosen]
    missing = [pending_run for pending_run in pending(wanted) if not _was_launched(pending_run)]
    open_runs = missing[:MAX_LAUNCHED]
    first = f"{MAX_LAUNCHED} of " if len(missing) > MAX_LAUNCHED else ""
    label = f"Launch {first}{len(missing):,} missing {'run' if len(missing) == 1 else 'runs'}"
    settings = _settings() if scale is Scale.PAPER else []
    if scale is Scale.PAPER and open_runs:
        st.caption(_cost(study, open_runs, settings))
    with st.container(horizontal=True, vertical_alignment="center"):
        is_launched = st.button(
            label if open_runs else "Nothing is missing", icon=":material/rocket_launch:", type="primary", key="launch",
            disabled=not open_runs, help="Queued seed by seed; runs that stopped, failed or were lost are resumed",
        )  # fmt: skip
        if any(state in LIVE for cell in cells for state in cell.states):
            st.button(
                "Stop all", icon=":material/stop:", key="stop-study", on_click=_stop_all, args=(study, scale),
                help="Every run and evaluation of the study at this scale stops at its next step, with a checkpoint",
            )  # fmt: skip
    if is_launched:
        _launch(study, open_runs, settings)
    if scale is Scale.PAPER:
        chosen_names = [cell.cell for cell in wanted] if chosen else []
        _show_command(study, chosen_names, max(len(cell.keys) for cell in cells), settings)


def _settings() -> list[str]:
    """Show which fields differ in every new run, and return them as `--set` takes them."""
    text = st.text_area(
        "Changes of every new run", key="study-settings", height="content", placeholder="field=value, one per line",
        help="Such as `model.source=Qwen/Qwen2.5-7B`, or `verl.ray.address=http://127.0.0.1:8265` for a Ray cluster",
    )  # fmt: skip
    return [line.strip() for line in text.splitlines() if line.strip()]


def _cost(study: Study, open_runs: Sequence[PendingRun], settings: Sequence[str]) -> str:
    try:
        hours = estimate_hours(study, [pending_run.key for pending_run in open_runs], settings)
    except UserError as error:
        return f":red[{literal(str(error))}]"
    taken = "less than an H100 hour" if (hours or 0.0) < 1 else f"about {hours:,.0f} H100 hours"
    taken = "hours that depend on models not known here" if hours is None else taken
    runs = "1 run takes" if len(open_runs) == 1 else f"{len(open_runs):,} runs take"
    return (
        f"{runs} {taken}, a coarse estimate. Runs that start from another one's checkpoint wait "
        "for it, and each run's last checkpoint is scored where the study compares scores."
    )


def _stop_all(study: Study, scale: Scale) -> None:
    try:
        num_stopped = running.stop_all(runs_root(), study, scale)
    except UserError as error:
        st.toast(str(error), icon=":material/error:")
    else:
        st.toast(f"Stopping {num_stopped:,} {'job' if num_stopped == 1 else 'jobs'}", icon=":material/check:")


def _launch(study: Study, open_runs: Sequence[PendingRun], settings: Sequence[str]) -> None:
    launched: dict[RunKey, int] = st.session_state.setdefault(_LAUNCHED, {})
    refused: dict[str, None] = {}
    num_queued = 0
    for pending_run in open_runs:
        try:
            running.start(runs_root(), study, pending_run, settings)
        except UserError as error:
            refused[str(error)] = None
        else:
            launched[pending_run.key] = pending_run.run.attempt if pending_run.run else 0
            num_queued += 1
    if num_queued:
        st.toast(f"Queued {num_queued:,} {'run' if num_queued == 1 else 'runs'}", icon=":material/check:")
    if refused:
        notice.show("warning", f"Not queued: {len(refused):,}", "\n".join(refused))


def _was_launched(pending_run: PendingRun) -> bool:
    """Whether this session has already started it; the database may not know yet."""
    attempt = st.session_state.get(_LAUNCHED, {}).get(pending_run.key)
    return attempt is not None and (pending_run.run.attempt if pending_run.run else 0) <= attempt


def _show_command(study: Study, names: Sequence[str], num_seeds: int, settings: Sequence[str]) -> None:
    parts = [f"exgrpo study run {study.name} --scale paper"]
    parts += [f"--cells {','.join(names)}"] if names else []
    parts += [f"--seeds {num_seeds}"] if num_seeds > 1 else []
    parts += [f"--set {shlex.quote(setting)}" for setting in settings]
    st.caption("CLI command")
    st.code(escape_control_characters(" ".join(parts)), language=None, wrap_lines=True)
