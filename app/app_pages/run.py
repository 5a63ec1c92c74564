"""One run: live figures, curves, buffer, log, configuration."""

import streamlit as st

from app import commands, queries
from app.components import (
    attempts,
    branch_form,
    bucket_heatmap,
    buffer_area,
    config_view,
    curves,
    empty_state,
    log_tail,
    run_controls,
    run_header,
    run_progress,
)
from db.rows import RunRow

REFRESH_SECONDS = 2
CHECK_SECONDS = 5
VIEWS = ["Curves", "Replay buffer", "Log", "Configuration", "Attempts"]


def _run_id() -> str | None:
    """Return the run of the address, else the one seen last, else the newest; the address names it from then on."""
    run_id = st.query_params.get("run") or st.session_state.get("last-run")
    if run_id is None:
        rows = queries.list_runs(queries.RunFilter())
        run_id = rows[0].run_id if rows else None
    if run_id is not None:
        st.query_params["run"] = st.session_state["last-run"] = run_id
    return run_id


def _header(seen: RunRow) -> None:
    """Show the live figures; a change of state or health concerns the whole page."""
    row = queries.get_run(seen.run_id)
    if row is None or (row.status, row.health) != (seen.status, seen.health):
        st.rerun(scope="app")
    run_header.show_figures(row, queries.last_metrics(row.run_id), queries.list_evaluations(row.run_id))


def _curves(row: RunRow) -> None:
    keys = (*curves.KEYS, *buffer_area.KEYS)
    curves.show(queries.metric_series(row.run_id, keys), queries.list_evaluations(row.run_id), "curve")


def _buffer(row: RunRow) -> None:
    algorithm = queries.run_spec(row.run_id).get("algorithm", {})
    series = queries.metric_series(row.run_id, buffer_area.KEYS)
    if not algorithm.get("experience_ratio"):
        empty_state.show("replay", "No replay buffer", "This run is on-policy: it stores and replays nothing.")
        return
    bucket_heatmap.show(queries.bucket_grid(row.run_id), algorithm["rollouts_per_question"], "heatmap")
    buffer_area.show(series, "buffer-area")


def _log(row: RunRow) -> None:
    log_tail.show(queries.log_tail(row.run_id, log_tail.NUM_LINES))


def _configuration(row: RunRow) -> None:
    base = commands.load_preset(row.preset) if row.preset in commands.preset_names() else commands.TrainSpec()
    name = f"preset {row.preset}" if row.preset in commands.preset_names() else "paper defaults"
    config_view.show(queries.run_spec(row.run_id), base.model_dump(mode="json"), name)


def _attempts(row: RunRow) -> None:
    attempts.show(queries.list_attempts(row.run_id), queries.list_checkpoints(row.run_id))


def _branch(row: RunRow) -> None:
    branched = branch_form.show(row, queries.list_checkpoints(row.run_id))
    if branched is not None:
        st.switch_page("app_pages/run.py", query_params={"run": branched})


def _show(row: RunRow) -> None:
    refresh = REFRESH_SECONDS if run_progress.is_live(row) else None
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        run_header.show_identity(row)
        with st.container(horizontal=True, gap="small", width="content", key="run-controls"):
            action = run_controls.show(row)
            st.fragment(_branch, run_every=refresh)(row)
    if action == "clone":
        st.switch_page("app_pages/new_run.py", query_params={"from": row.run_id})
    run_header.show_reason(row)
    st.fragment(_header, run_every=refresh or CHECK_SECONDS)(row)
    views = dict(zip(VIEWS, [_curves, _buffer, _log, _configuration, _attempts], strict=True))
    for name, tab in zip(VIEWS, st.tabs(VIEWS, key="view", bind="query-params", on_change="rerun"), strict=True):
        if tab.open:
            with tab:
                st.fragment(views[name], run_every=refresh if name != "Configuration" else None)(row)


run_id = _run_id()
found = queries.get_run(run_id) if run_id else None
if found is not None:
    _show(found)
elif run_id is None:
    empty_state.show("replay", "No runs yet", "Set up your first one under **New run**.", "exgrpo demo")
else:
    empty_state.show("search_off", "No such run", "The address names a run that is not in this workbench.")
