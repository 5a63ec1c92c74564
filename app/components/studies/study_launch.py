"""Starts the missing runs of a study; at the paper's scale it shows the command for that."""

import shlex
from collections.abc import Sequence

import streamlit as st

from app import paper_and_studies, requests
from app.components.studies.study_matrix import LIVE, CellState, pending
from app.components.widgets import address_choice, notice
from app.formats import escape_control_characters, literal
from app.paper_and_studies import PendingRun, RunKey, Scale, Study
from app.requests import UserError

MAX_LAUNCHED = 200
"""Runs that one click queues: more would keep the page waiting for minutes."""
_LAUNCHED = "study-launched"


def seeds(study: Study, scale: Scale) -> int:
    """Show the number of seeds per cell and return it."""
    default = 1 if scale is Scale.PAPER else study.num_seeds
    return int(st.number_input("Seeds per cell", 1, 64, default, key=f"seeds-{scale}", bind="query-params", width=130))


def show(study: Study, scale: Scale, cells: Sequence[CellState]) -> None:
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
        _launch(open_runs, settings)
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
    """Return in words what the launch queues and takes, or which change is wrong."""
    try:
        hours = paper_and_studies.estimate_hours(study, [pending_run.key for pending_run in open_runs], settings)
    except UserError as error:
        return f":red[{literal(str(error))}]"
    taken = "hours that depend on models not known here" if hours is None else _about(hours)
    runs = "1 run takes" if len(open_runs) == 1 else f"{len(open_runs):,} runs take"
    return (
        f"{runs} {taken}, a coarse estimate. Runs that start from another one's checkpoint wait "
        "for it, and each run's last checkpoint is scored where the study compares scores."
    )


def _about(hours: float) -> str:
    return f"about {hours:,.0f} H100 hours" if hours >= 1 else "less than an H100 hour"


def _stop_all(study: Study, scale: Scale) -> None:
    try:
        num_stopped = requests.stop_study(study.name, scale.value)
    except UserError as error:
        st.toast(str(error), icon=":material/error:")
    else:
        st.toast(f"Stopping {num_stopped:,} {'job' if num_stopped == 1 else 'jobs'}", icon=":material/check:")


def _launch(open_runs: Sequence[PendingRun], settings: Sequence[str]) -> None:
    launched: dict[RunKey, int] = st.session_state.setdefault(_LAUNCHED, {})
    refused: dict[str, None] = {}
    num_queued = 0
    for pending_run in open_runs:
        try:
            requests.start_study_run(pending_run, settings)
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
    st.code(escape_control_characters(" ".join(parts)), language="bash", wrap_lines=True)
