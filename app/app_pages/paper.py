"""The paper's figures and tables in its order, each with its printed numbers and the same drawn from runs."""

import streamlit as st

from app.components.paper import entry_view, gallery, run_selection
from app.components.paper.entries import BY_KEY
from app.components.widgets import address_choice

with st.container(horizontal=True, vertical_alignment="center"):
    st.title("Paper", anchor=False, width="content")
wanted = st.query_params.get(gallery.ADDRESS, "")
opened = BY_KEY.get(wanted)
if opened is not None:
    entry_view.show_head(opened)
else:
    st.markdown(
        "**ExGRPO: Learning to Reason from Experience**, figure by figure and table by table. Open one for its printed "
        "numbers, for the same drawn from runs, and for the page that shows it live."
    )
    if wanted:
        address_choice.show_unknown(gallery.ADDRESS, wanted, "all figures and tables are listed")
selected = run_selection.show(opened)
if opened is None:
    gallery.show(selected)
else:
    entry_view.show(opened, selected)
