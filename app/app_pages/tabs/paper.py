"""Methods, Paper: its figures and tables in order, each with its printed numbers and the same drawn from runs."""

import streamlit as st

from exgrpo.app import address
from exgrpo.app.components.paper import printed_figures, run_figures, run_selection
from exgrpo.app.components.paper.entries import BY_KEY, ENTRIES, Entry, Home
from exgrpo.app.components.paper.printed_figures import ADDRESS
from exgrpo.app.components.paper.run_selection import RunSelection
from exgrpo.app.components.widgets import address_choice, run_choice
from exgrpo.app.page_list import PAGES


def _show_head(entry: Entry) -> None:
    position = ENTRIES.index(entry)
    neighbours = {
        "Previous": ENTRIES[position - 1] if position else None,
        "Next": ENTRIES[position + 1] if position + 1 < len(ENTRIES) else None,
    }
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button(
            "All figures and tables", icon=":material/arrow_back:", type="tertiary", key="back", on_click=address.put,
            args=({ADDRESS: None},),
        )  # fmt: skip
        st.space("stretch")
        for label, other in neighbours.items():
            st.button(
                label, type="tertiary", key=f"paper-{label.lower()}", disabled=other is None, on_click=address.put,
                args=({ADDRESS: other.key if other else None},),
                help=f"{other.label}: {other.title}" if other else None,
            )  # fmt: skip
    st.subheader(f"{entry.label}: {entry.title}", anchor=False)
    st.markdown(entry.finding)


def _show_entry(entry: Entry, selection: RunSelection) -> None:
    printed_figures.show(entry)
    run_figures.show(entry, selection)
    with st.container(horizontal=True, vertical_alignment="center", key="homes"):
        st.markdown("See it live:", width="content")
        icons = {page.name: f":material/{page.icon}:" for page in PAGES}
        for home in entry.homes:
            st.page_link(
                f"app_pages/{home.page}.py", label=home.label, icon=icons[home.page],
                query_params=query_of(home, selection),
            )  # fmt: skip


def query_of(home: Home, selection: RunSelection) -> dict[str, str]:
    """Return the parameters with which a page shows the selected runs."""
    query = dict(home.query)
    if home.page == "run" and selection.first is not None:
        query["run"] = selection.first.run_id
    if home.page == "compare" and len(selection.rows) > 1:
        query |= run_choice.compared_parameters(list(selection.rows))
    return query


def show() -> None:
    """Show the figure or table of the address, else all as cards."""
    wanted = st.query_params.get(ADDRESS, "")
    opened = BY_KEY.get(wanted)
    if opened is not None:
        _show_head(opened)
    else:
        st.markdown(
            "**ExGRPO: Learning to Reason from Experience**, figure by figure and table by table. Open one for its "
            "printed numbers, for the same drawn from runs, and for the page that shows it live."
        )
        if wanted:
            address_choice.show_unknown(ADDRESS, wanted, "all figures and tables are listed")
    selected = run_selection.show(opened)
    if opened is None:
        printed_figures.show_index()
    else:
        _show_entry(opened, selected)
