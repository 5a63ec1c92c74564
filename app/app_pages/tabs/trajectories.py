"""Run, Trajectories: search and facets, their questions, and one of them with its tokens, lineage and group."""

import streamlit as st

from exgrpo.app import address
from exgrpo.app.components.trajectories import question_list, trajectory_detail, trajectory_search
from exgrpo.app.components.widgets import long_lists, notice, run_state
from exgrpo.app.queries.answers import ask, ask_pages
from exgrpo.db.queries import runs, trajectories, trajectory_list
from exgrpo.db.rows.runs import RunRow
from exgrpo.db.rows.trajectories import TrajectoryFacets, TrajectoryOrder, TrajectoryRow, TrajectorySortKey

REFRESH_SECONDS = 4


def _list_snippets(
    facets: TrajectoryFacets, num_pages: int = 1, order: TrajectoryOrder | None = None
) -> list[TrajectoryRow]:
    """Return the first pages of matching trajectories, newest first without an order."""
    if order is not None:
        return ask(trajectory_list.list_snippets, facets, limit=long_lists.PAGE_SIZE * num_pages, order=order)

    def page_after(last: TrajectoryRow | None) -> list[TrajectoryRow]:
        before = last.trajectory_key if last else None
        return ask(trajectory_list.list_snippets, facets, before=before, limit=long_lists.PAGE_SIZE)

    return ask_pages(page_after, long_lists.PAGE_SIZE, num_pages)


def _count(where: TrajectoryFacets, num_listed: int, newest: int | None) -> None:
    """Show how many trajectories match, and a button for newer ones, so that the list never moves by itself."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        total = ask(trajectory_list.count_trajectories, where)
        order = "" if newest is None else ", newest first"
        st.caption(f"{num_listed:,} of {total:,} trajectories{order}", width="content")
        if newest is None:
            return
        first = _list_snippets(where)[:1]
        if (
            first
            and first[0].trajectory_key != newest
            and st.button("Show newer ones", icon=":material/refresh:", key="newer", type="tertiary")
        ):
            st.rerun(scope="app")


def _list(row: RunRow, where: TrajectoryFacets, opened: int | None) -> None:
    order = long_lists.order_of_address(TrajectorySortKey)
    rows = _list_snippets(where, long_lists.num_pages((where, order)), order)
    if not rows:
        if where == TrajectoryFacets(run_id=row.run_id):
            notice.show_empty("article", "No trajectories yet", "They appear after the first step of the run.")
        else:
            notice.show_empty("filter_alt_off", "No trajectory matches", "Clear the search or a filter.")
        return
    refresh = REFRESH_SECONDS if run_state.is_live(row) else None
    num_rows = max(len(rows), ask(trajectory_list.count_trajectories, where))
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        with st.container(width="content"):
            st.fragment(_count, run_every=refresh)(where, len(rows), None if order else rows[0].trajectory_key)
        trajectory_search.show_export(where, num_rows)
    trajectory_search.show_table(rows, opened, where, order, num_rows)


def show(row: RunRow) -> None:
    """Show the run's trajectories, and next to them the one in the address."""
    trajectory_search.forget_other_run(row.run_id)
    algorithm = ask(runs.run_spec, row.run_id).get("algorithm", {})
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        words = trajectory_search.words()
        listed = trajectory_search.choose_list()
        mark = trajectory_detail.choose()
    if mark is not None:
        trajectory_detail.show_marked(mark)
    if not notice.is_searchable(words):
        return
    wanted = trajectory_search.show(row.run_id, words, algorithm.get("rollouts_per_question", 8))
    trajectory = address.whole_number("trajectory")
    with st.container(key="trajectory-panels"):
        with st.container():
            if listed == trajectory_search.TRAJECTORIES:
                _list(row, wanted, trajectory)
            else:
                question_list.show(wanted, is_unsolved=listed == trajectory_search.NEVER_SOLVED)
        if trajectory is not None:
            with st.container(border=True, key="trajectory-panel"):
                order = long_lists.order_of_address(TrajectorySortKey)
                if (opened := ask(trajectories.get_trajectory, row.run_id, trajectory)) is None:
                    notice.show_no_such_trajectory()
                else:
                    trajectory_detail.show(opened, *ask(trajectory_list.neighbours, wanted, order, trajectory))
