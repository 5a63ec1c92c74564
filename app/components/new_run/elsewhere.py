"""Files that start a run of verl on other machines: its dry run, scripts for a shell and for Slurm, a line for Ray."""

from functools import partial

import streamlit as st

from app import requests
from app.formats import escape_control_characters, literal
from app.requests import RunRefusedError, ScriptKind, SpecError, TrainSpec

_ICON = ":material/download:"


def show(spec: TrainSpec) -> None:
    """Show what starts the run on other machines; this machine needs no GPU for it."""
    try:
        scripts = {kind: requests.launch_script(spec, kind) for kind in ScriptKind}
    except SpecError as error:
        if not isinstance(error, RunRefusedError):  # those are beside the button already
            st.caption(literal(f"To run it elsewhere: {error}"))
        return
    with st.container(border=True, key="run-elsewhere"):
        st.markdown("**Run it elsewhere**")
        st.caption("Each script holds this specification and needs a checkout with `make verl-env GPU=1` there.")
        with st.container(horizontal=True):
            for kind, label in ((ScriptKind.SHELL, "Shell script"), (ScriptKind.SLURM, "Slurm script")):
                st.download_button(
                    label, scripts[kind].text, file_name=scripts[kind].file_name, mime="application/x-sh", icon=_ICON,
                    on_click="ignore", key=f"elsewhere-{kind}",
                )  # fmt: skip
            st.download_button(
                "Dry run", partial(requests.dry_run_text, spec), file_name="dry-run.txt", mime="text/plain",
                icon=_ICON, on_click="ignore", key="elsewhere-dry-run",
                help="Settings of verl, memory of each GPU, disk",
            )  # fmt: skip
        st.caption("As a job of a Ray cluster, from a folder that holds the shell script alone:")
        st.code(escape_control_characters(scripts[ScriptKind.RAY].text.rstrip()), language="bash", wrap_lines=True)
