"""All runs: their state, progress and scores."""

from collections.abc import Callable, Mapping, Sequence

import streamlit as st

from exgrpo.app import settings
from exgrpo.app.components.new_run import data_preview
from exgrpo.app.components.runs import run_controls, run_groups, run_table
from exgrpo.app.components.system import system_view
from exgrpo.app.components.widgets import data_table, notice
from exgrpo.app.formats import counted
from exgrpo.app.queries.answers import ask
from exgrpo.app.queries.runs import RUNS_PAGE_SIZE, list_runs
from exgrpo.db.queries import runs
from exgrpo.db.queries.run_filter import RunFilter, RunOrder
from exgrpo.db.rows.runs import RunRow
from exgrpo.jobs.actions import run_bin
from exgrpo_core.recording.run_status import LIVE, RunStatus

REFRESH_SECONDS = 2
CHECK_SECONDS = 5
"""How often the list is read again while no run is queued or running."""
_EVERY_RUN = RunFilter(is_archived=None)
STATES: dict[str, tuple[str, ...]] = {
    "All": (),
    "Active": LIVE,
    "Finished": (RunStatus.FINISHED,),
    "Failed or lost": (RunStatus.FAILED, RunStatus.LOST),
    "Stopped": (RunStatus.STOPPED,),
}
ARCHIVED, BIN = "Archived", "Bin"
_JOBS: tuple[tuple[str, str, str, str, dict[str, str]], ...] = (
    ("new_run", "Train", "model_training", "With experience replay, on a built-in task, your data or the paper's.", {}),
    (
        "benchmarks",
        "Score models",
        "leaderboard",
        "On the paper's benchmarks or questions of yours.",
        {"start": "true"},
    ),
    (
        "methods",
        "Run a study",
        "science",
        "A table of the paper, or a sweep over values that you list.",
        {"view": "Studies"},
    ),
)
"""What the page offers before there are runs: page, label, icon, what it does, and the page's address."""
KINDS = {"All runs": (), "Training": ("train",), "Evaluations": ("eval",), "Judges": ("judge",)}


def _chosen() -> tuple[RunFilter, Sequence[str], str | None, bool]:
    """Show search, states, columns and groups; return the filter, columns, what to group by, and if the bin is open."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="runs-filter"):
        words = st.text_input(
            "Search runs", placeholder="Search, or seed=3 held-out>40%", icon=":material/search:", width=250,
            key="q", bind="query-params", label_visibility="collapsed",
            help="Words of name, method, model, data, tags or notes, and conditions on columns, states, tags, fields, "
            "scores and metrics, which exclude after a minus: `status:failed -tag:old learning_rate<1e-5 held-out>40%`",
        )  # fmt: skip
        state = st.segmented_control(
            "State", [*STATES, ARCHIVED, BIN], default="All", required=True,
            key="state", bind="query-params", label_visibility="collapsed",
        )  # fmt: skip
        kind = st.selectbox(
            "Kind", list(KINDS), key="kind", bind="query-params", label_visibility="collapsed", width=130
        )
        columns = run_table.columns_of_address(KINDS[kind])
        with st.popover("Columns", icon=":material/view_column:", key="columns-menu"):
            group = run_groups.choose()
            run_table.choose_columns(columns, run_table.usual_columns(KINDS[kind]))
    where = RunFilter(words.strip(), STATES.get(state, ()), is_archived=state == ARCHIVED, kinds=KINDS[kind])
    return where, columns, group, state == BIN


def _pages() -> dict[RunFilter, int]:
    pages: dict[RunFilter, int] = st.session_state.setdefault("runs-pages", {})
    return pages


def _show_older(where: RunFilter) -> None:
    _pages()[where] = _pages().get(where, 1) + 1


def _has_live(counts: Mapping[str, int]) -> bool:
    return any(counts.get(state) for state in LIVE)


def _show_none() -> None:
    if settings.current().is_view:
        notice.show_empty("hourglass_empty", "Reading", "The first rollouts appear in seconds.")
        return
    st.subheader("What do you want to do?", anchor=False)
    for column, (page, label, icon, text, address) in zip(st.columns(len(_JOBS)), _JOBS, strict=True):
        with column.container(border=True, height="stretch"):
            st.page_link(f"app_pages/{page}.py", label=f"**{label}**", icon=f":material/{icon}:", query_params=address)
            st.caption(text)
    notice.show_empty(
        "replay", "No runs yet", "The demo trains with ExGRPO and with on-policy Dr.GRPO in minutes:", "exgrpo demo"
    )


def _list(was_live: bool) -> None:
    counts = ask(runs.count_runs, _EVERY_RUN)
    if _has_live(counts) != was_live:
        st.rerun(scope="app")
    if not sum(counts.values()):
        _show_none()
        return
    with st.container(horizontal=True, vertical_alignment="center", key="runs-line"):
        system_view.show_line(counts)
        run_controls.show_last()
    where, columns, group, is_bin = _chosen()
    if is_bin:
        run_controls.show_bin()
        return
    num_runs: Mapping[str, int] | None = None
    with notice.refusals("Not searched"):
        num_runs = ask(runs.count_runs, where)
    if num_runs is None:
        return
    order = run_table.order_of_address(columns)
    num_pages = run_groups.MAX_RUNS // RUNS_PAGE_SIZE if group else _pages().get(where, 1)
    deleted = run_bin.list_deleted(settings.runs_root())
    listed = list_runs(where, num_pages, order)
    rows = [row for row in listed if row.run_id not in deleted]
    if not rows:
        notice.show_empty("filter_alt_off", "No run matches", "Clear the search or choose another state.")
        return

    def all_rows() -> list[RunRow]:
        return [row for row in ask(runs.list_runs, where, order=order, limit=None) if row.run_id not in deleted]

    if group is not None:
        if (opened_group := run_groups.open_group(rows, group)) is None:
            run_groups.show(rows, sum(num_runs.values()), group, all_rows, list(filter(run_table.is_measure, columns)))
            return
        caption = f"{counted(len(opened_group), 'run')} of this group"
        _show_table(opened_group, caption, columns, order, lambda: run_groups.members(all_rows(), group))
        return
    num_active = sum(num_runs.get(state, 0) for state in LIVE)
    # The index still counts a deleted run until it drops it.
    num_all = len(rows) if len(listed) < num_pages * RUNS_PAGE_SIZE else sum(num_runs.values())
    caption = f"{len(rows):,} of {counted(num_all, 'run')}, {num_active:,} active"
    _show_table(rows, caption, columns, order, all_rows)
    if len(rows) < num_all:
        st.button("Show more runs", icon=":material/expand_more:", key="older", on_click=_show_older, args=(where,))


def _show_table(
    rows: Sequence[RunRow], caption: str, columns: Sequence[str], order: RunOrder,
    all_rows: Callable[[], Sequence[RunRow]],
) -> None:  # fmt: skip
    """Show the table with what can be done to its ticked runs; a click opens a run, files have all that match."""
    above = st.container(horizontal=True, vertical_alignment="center", gap="small", key="runs-above")
    above.caption(caption, width="content", help="Tick runs to compare them or to do something with them")
    opened, ticked = run_table.show(rows, "runs-table", order, columns)
    with above:
        if ticked:
            run_controls.show_compare(ticked)
        if ticked and not settings.current().is_view:
            run_controls.show_tags(ticked)
            run_controls.show_rename(ticked)
            run_controls.show_archive(ticked)
            run_controls.show_delete(ticked)
        st.space("stretch")
        data_table.export(lambda: run_table.exported(all_rows(), columns), "runs", formats=data_table.WHOLE_FORMATS)
    if opened is not None:
        st.switch_page("app_pages/run.py", query_params={"run": opened})


with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
    st.title("Runs", anchor=False, width="content")
    if not settings.current().is_view:
        with st.container(horizontal=True, width="content"):
            data_preview.show_open_rollouts()
            if st.button("New run", icon=":material/add:", type="primary", key="to-new-run"):
                st.switch_page("app_pages/new_run.py")
is_live = _has_live(ask(runs.count_runs, _EVERY_RUN))
st.fragment(_list, run_every=REFRESH_SECONDS if is_live or settings.current().is_view else CHECK_SECONDS)(is_live)
