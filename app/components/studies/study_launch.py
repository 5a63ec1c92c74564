"""Starts the missing runs of a study; at the paper's scale it shows the command for that."""

from collections.abc import Sequence

import streamlit as st

from app import commands
from app.commands import UserError
from app.components.studies.study_state import CellState, pending
from app.components.widgets import address_choice, notice
from app.published import PendingRun, RunKey, Scale, Study

_LAUNCHED = "study-launched"


def seeds(study: Study, scale: Scale) -> int:
    """Show the number of seeds per cell and return it."""
    default = study.num_seeds if scale is Scale.CHAINS else 1
    return int(st.number_input("Seeds per cell", 1, 64, default, key=f"seeds-{scale}", bind="query-params", width=130))


def show(study: Study, scale: Scale, cells: Sequence[CellState]) -> None:
    """Show the choice of cells and the button that queues their missing runs."""
    names = [cell.cell for cell in cells]
    chosen = address_choice.select_several(
        "Only these cells", dict(zip(names, names, strict=True)), "cells", [], "All cells"
    )
    wanted = [cell for cell in cells if not chosen or cell.cell in chosen]
    if scale is Scale.PAPER:
        _show_command(study, [cell.cell for cell in wanted] if chosen else [], max(len(cell.keys) for cell in cells))
        return
    open_runs = [pending_run for pending_run in pending(wanted) if not _was_launched(pending_run)]
    label = f"Launch {len(open_runs):,} missing {'run' if len(open_runs) == 1 else 'runs'}"
    if st.button(
        label if open_runs else "Nothing is missing", icon=":material/rocket_launch:", type="primary", key="launch",
        disabled=not open_runs, help="Queued seed by seed; runs that stopped, failed or were lost are resumed",
    ):  # fmt: skip
        _launch(open_runs)


def _launch(open_runs: Sequence[PendingRun]) -> None:
    launched: dict[RunKey, int] = st.session_state.setdefault(_LAUNCHED, {})
    refused: dict[str, None] = {}
    num_queued = 0
    for pending_run in open_runs:
        try:
            commands.start_study_run(pending_run)
        except UserError as error:
            refused[str(error)] = None
        else:
            launched[pending_run.key] = pending_run.run.attempt if pending_run.run else 0
            num_queued += 1
    if num_queued:
        st.toast(f"Queued {num_queued:,} runs", icon=":material/check:")
    if refused:
        notice.show("warning", f"Not queued: {len(refused):,}", "\n".join(refused))


def _was_launched(pending_run: PendingRun) -> bool:
    """Whether this session has already started it; the database may not know yet."""
    attempt = st.session_state.get(_LAUNCHED, {}).get(pending_run.key)
    return attempt is not None and (pending_run.run.attempt if pending_run.run else 0) <= attempt


def _show_command(study: Study, names: Sequence[str], num_seeds: int) -> None:
    parts = [f"exgrpo study run {study.name} --scale paper"]
    parts += [f"--cells {','.join(names)}"] if names else []
    parts += [f"--seeds {num_seeds}"] if num_seeds > 1 else []
    st.markdown(
        "The paper's models need GPUs and the verl engine. This command starts the missing runs there; `--detach` "
        "queues them, and `--set model.source=...` chooses another backbone."
    )
    st.code(" ".join(parts), language="bash")
