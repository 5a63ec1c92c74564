"""Rollouts of other programs: a path on the server or an upload, with a preview, as a run of this workbench."""

from pathlib import Path
from tempfile import TemporaryDirectory

import streamlit as st

from exgrpo.app.components.new_run import data_preview
from exgrpo.app.components.widgets import notice
from exgrpo.app.settings import runs_root
from exgrpo.jobs.actions import import_process


def show() -> None:
    """Show the menu with the form; open the run's page once the rollouts are read."""
    with st.popover("Open rollouts", icon=":material/folder_open:", key="open-rollouts"):
        _ask()


def _ask() -> None:
    st.caption("Dumps and logs of any trainer; the format is found by content. `exgrpo view PATH` needs no workbench.")
    path = st.text_input("Path on this server", key="rollouts-path", placeholder="/data/run/rollouts")
    files = st.file_uploader("or files from here", accept_multiple_files=True, key="rollouts-files")
    mapping = st.text_area(
        "Own format", key="rollouts-format", height=80, placeholder="prompt: $.input\nresponse: $.output",
        help="Only for rows of no known format: YAML that says where in a row the values are",
    )  # fmt: skip
    with st.container(horizontal=True):
        is_preview = st.button("Preview", icon=":material/dataset:", key="rollouts-preview")
        is_open = st.button("Open", icon=":material/folder_open:", type="primary", key="rollouts-open")
    if not (is_preview or is_open):
        return
    with TemporaryDirectory(prefix="exgrpo-upload-") as folder, notice.refusals("Not opened"):
        for file in files:
            Path(folder, Path(file.name).name).write_bytes(file.getvalue())
        source = folder if files else path.strip()
        if is_preview:
            data_preview.show_preview(import_process.preview_import(source, mapping))
            return
        with st.spinner("Reading the rollouts"):
            more = f" and {len(files) - 1} more" if len(files) > 1 else ""
            origin = f"{files[0].name}{more}" if files else ""
            with import_process.format_file(mapping) as own_format:
                imported = import_process.import_in_process(runs_root(), Path(source), own_format, origin=origin)
        if len(imported.run_ids) > 1:  # such as a run for each task of an evaluation
            st.switch_page("app_pages/runs.py")
        st.switch_page("app_pages/run.py", query_params={"run": imported.run_id})
