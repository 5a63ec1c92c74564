"""Search and facets of trajectories, all in the address, and the list of matches that opens one on a click."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict
from urllib.parse import urlencode

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator
from streamlit.elements.lib.column_types import ColumnConfig

from exgrpo.app import address
from exgrpo.app.components.widgets import address_choice, grid, long_lists
from exgrpo.app.formats import NONE_SHOWN, escape_control_characters, literal
from exgrpo.app.queries.answers import ask
from exgrpo.db.queries import trajectory_list
from exgrpo.db.queries.trajectory_list import FacetCounts
from exgrpo.db.rows.trajectories import TrajectoryFacets, TrajectoryOrder, TrajectoryRow, TrajectorySortKey
from exgrpo_core.sums import VERDICTS

LIST, TRAJECTORIES, NEVER_SOLVED = "list", "Trajectories", "Never solved"
_LISTS = (TRAJECTORIES, "Questions", NEVER_SOLVED)
ANY = "any"
_OUTCOME, _FORMER_VERDICT = "outcome", "verdict"
_FLAGS = {
    _OUTCOME: ("Outcome", "is_correct", ("correct", "not correct")),
    "replayed": ("Replayed", "is_replayed", ("replayed", "never replayed")),
    "code": ("Code", "has_code", ("with code", "without code")),
    "valid": ("Chain of thought", "is_valid", ("valid", "not valid")),
    "errors": ("Tool calls", "has_tool_errors", ("some failed", "none failed")),
}
_BOUNDED: dict[str, tuple[str, float, float | None]] = {
    "step": ("Step", 1, 0), "reward": ("Reward", 0.1, None), "entropy": ("Entropy, nats", 0.05, 0.0),
    "tokens": ("Length, tokens", 1, 0), "turns": ("Turns", 1, 0),
}  # fmt: skip
"""Label, step and least value of what has bounds."""
_RANGES = tuple(f"{name}_{end}" for name in _BOUNDED for end in ("from", "to"))
_FAILURES = VERDICTS[1:]
"""Verdicts that are choices among the outcomes, too."""
_CHOICES = (*_FLAGS, "bucket", "tool")
_QUESTION = "question-index"
_KEYS = (*_CHOICES, *_RANGES, _QUESTION)
_OF_TOOLS = ("tool", "has_tool_errors")
_FIELDS: dict[str, str | None] = {
    **{name: _FLAGS[name][1] for name in (_OUTCOME, "replayed", "code", "valid")}, "bucket": "bucket", _QUESTION: None,
    "step": None, "entropy": "mean_entropy", "tool": "tool", "errors": "has_tool_errors", "turns": "num_turns",
    "tokens": "num_tokens", "reward": "reward", "clear": None,
}  # fmt: skip
"""What the filters show, in order, and what a run must have a value of for it."""
_RUN_KEY = "run-of-filters"
_PER_ROW = 4
_SIGNS = {True: "yes", False: "no", None: NONE_SHOWN}


def forget_other_run(run_id: str) -> None:
    """Drop the search and filters of the run that was shown before, but for those in the address."""
    if st.session_state.get(_RUN_KEY, run_id) != run_id:
        for key in ("words", *_KEYS):
            if key not in st.query_params:
                st.session_state.pop(key, None)
    st.session_state[_RUN_KEY] = run_id


def words() -> str:
    """Show the search field and return its text."""
    return st.text_input(
        "Search texts",
        placeholder="Search in responses: every word must occur",
        help="`role:tool timeout` searches what tools answered; so do system, user, assistant, thinking and call. "
        "`tool:search` finds uses of a tool.",
        key="words",
        bind="query-params",
        label_visibility="collapsed",
        icon=":material/search:",
        width=340,
    ).strip()


def choose_list() -> str:
    """Show the choice between the list of trajectories, that of questions and that of questions never solved."""
    wanted = st.query_params.get(LIST)
    chosen = wanted if wanted in _LISTS else TRAJECTORIES
    st.segmented_control(
        "List", _LISTS, required=True, label_visibility="collapsed",
        **address_choice.bound(LIST, chosen, drops=("trajectory", long_lists.ADDRESS), usual=TRAJECTORIES),
    )  # fmt: skip
    return chosen


def show(run_id: str, searched: str, rollouts_per_question: int) -> TrajectoryFacets:
    """Show the facets, each value with how many would match if it were chosen, and return the chosen ones."""
    if (former := st.query_params.pop(_FORMER_VERDICT, None)) is not None:
        st.query_params[_OUTCOME] = former
    panel = st.expander("Filters", icon=":material/tune:", key="facets", on_change="rerun", bind="query-params")
    is_shown = panel.open or _is_any_set()
    known = ask(trajectory_list.list_known, run_id) if is_shown else []
    tools = ask(trajectory_list.list_tools, run_id) if "num_turns" in known else []
    choices: dict[str, DeltaGenerator] = {}
    if is_shown:
        with panel:
            choices = _fields({*known, *(_OF_TOOLS if tools else ())})
    offered: dict[str, tuple[str, tuple[str, ...]]] = {key: (label, names) for key, (label, _, names) in _FLAGS.items()}
    offered[_OUTCOME] = (_FLAGS[_OUTCOME][0], (*_FLAGS[_OUTCOME][2], *_FAILURES))
    offered["bucket"] = ("Stored in bucket", tuple(map(str, range(1, rollouts_per_question))))
    offered["tool"] = ("Tool", tuple(tools))
    wanted = {key: st.query_params.get(key) for key in choices}
    chosen = {key: value for key, value in wanted.items() if value is not None and value in offered[key][1]}
    where = TrajectoryFacets(
        run_id=run_id, words=searched,
        **{field: chosen[key] == names[0] for key, (_, field, names) in _FLAGS.items() if chosen.get(key) in names},
        **{name: st.session_state.get(name) for name in _RANGES}, question_index=st.session_state.get(_QUESTION),
        bucket=int(chosen["bucket"]) if "bucket" in chosen else None, tool=chosen.get("tool"),
        verdict=chosen[_OUTCOME] if chosen.get(_OUTCOME) in _FAILURES else None,
    )  # fmt: skip
    counts = ask(trajectory_list.count_facets, where) if panel.open else {}
    for key, place in choices.items():
        label, names = offered[key]
        labels = {name: escape_control_characters(name) + _count(counts, key, name) for name in names}
        place.selectbox(
            label, [ANY, *names], format_func=({ANY: ANY} | labels).__getitem__,
            **address_choice.bound(key, chosen.get(key, ANY), key, usual=ANY),
        )  # fmt: skip
    summary = _summary(where, [chosen[key] for key in _FLAGS if key in chosen])
    if summary:
        st.caption(f":material/filter_alt: {summary}")
    return where


def _is_any_set() -> bool:
    """Return whether any facet is chosen; its field must then be on the page to keep its value."""
    values = (st.query_params.get(key) or st.session_state.get(key) for key in _KEYS)
    return any(value is not None and value != ANY for value in values)


def _fields(known: Collection[str]) -> dict[str, DeltaGenerator]:
    """Show the facets that are numbers; return the place of each choice, whose values have counts under these.

    Filters without known values are left out, unless the address has one.
    """
    chosen = {key.removesuffix("_from").removesuffix("_to") for key in st.query_params}
    fields = [name for name, needed in _FIELDS.items() if needed is None or needed in known or name in chosen]
    places: dict[str, DeltaGenerator] = {}
    for position, name in enumerate(fields):
        if position % _PER_ROW == 0:
            columns = st.columns(_PER_ROW, gap="medium")
        place = columns[position % _PER_ROW]
        if name in _CHOICES:
            places[name] = place
            continue
        with place:
            if name in _BOUNDED:
                label, step, least = _BOUNDED[name]
                _range(label, name, step, least)
            elif name == _QUESTION:
                st.number_input("Question", 0, value=None, step=1, key=_QUESTION, bind="query-params")
            else:
                st.space("small")
                st.button("Clear all", icon=":material/filter_alt_off:", on_click=_clear, key="facets-clear")
    return places


def _count(counts: FacetCounts, key: str, name: str) -> str:
    """Return how many trajectories have a value of a choice, in brackets; nothing of a value that is not counted."""
    _, field, names = _FLAGS.get(key, ("", "", ("",)))
    of_field, value = (
        (counts.get("verdict", {}), name) if name in _FAILURES else (counts.get(field, {}), name == names[0])
    )
    return f" ({of_field[value]:,})" if value in of_field else ""


def _range(label: str, name: str, step: float, least: float | None) -> None:
    is_whole = isinstance(step, int)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="xsmall"):
        for end, text in (("from", f"{label}, from"), ("to", "to")):
            st.number_input(
                text, least, value=None, step=step, format="%d" if is_whole else "%.3f", key=f"{name}_{end}",
                bind="query-params",
            )  # fmt: skip


def _summary(where: TrajectoryFacets, flags: Sequence[str]) -> str:
    parts = [*flags]
    if where.tool is not None:
        parts.append(f"tool {literal(where.tool)}")
    if where.bucket is not None:
        parts.append(f"bucket {where.bucket}")
    if where.question_index is not None:
        parts.append(f"question {where.question_index}")
    bounds = {name: _bounds(where, name) for name in _BOUNDED}
    return ", ".join(parts + [f"{name} {text}" for name, text in bounds.items() if text])


def _bounds(where: TrajectoryFacets, name: str) -> str:
    low, high = getattr(where, f"{name}_from"), getattr(where, f"{name}_to")
    return " ".join(f"{word} {value}" for word, value in (("from", low), ("to", high)) if value is not None)


def _clear() -> None:
    address.put(dict.fromkeys(_CHOICES))
    for key in (*_RANGES, _QUESTION):
        st.session_state[key] = None


def show_table(
    rows: Sequence[TrajectoryRow], opened: int | None, where: TrajectoryFacets, order: TrajectoryOrder | None,
    num_rows: int,
) -> None:  # fmt: skip
    """Show rows of the `num_rows` that fit; a click writes one into the address, one on a head the order of all.

    An open trajectory below makes the table lower.
    """
    clicks = grid.Clicks(
        [str(row.trajectory_id) for row in rows],
        lambda trajectory: address.put({"trajectory": trajectory}),
        None if opened is None else str(opened),
    )
    sorting = long_lists.sorting(long_lists.heads(TrajectorySortKey), order, (where, order), num_rows)
    grid.draw(
        _trajectory_table(rows), "trajectories-table",
        "Table of trajectories: step, question, verdict, length, entropy, replays and the start of the text",
        {name: column for name, (_, column) in _COLUMNS.items()}, 15 if opened is None else 6, clicks, sorting,
    )  # fmt: skip


def show_export(where: TrajectoryFacets, num_rows: int) -> None:
    """Show the menu of downloads of all trajectories that fit, with whole texts."""
    values = {name: value for name, value in asdict(where).items() if value not in {None, ""}}
    query = urlencode(values | {"sort": st.query_params.get(long_lists.ADDRESS, "")})
    menu = st.popover(
        "Export", icon=":material/download:", type="tertiary", wrap=False, key="export-trajectories",
        help="Download all that match as CSV or JSON lines",
    )  # fmt: skip
    with menu, st.container(gap="xxsmall"):
        st.caption(f"{num_rows:,} trajectories with whole texts")
        for name, ending in (("CSV", "csv"), ("JSON lines", "jsonl")):
            st.link_button(name, f"download/trajectories.{ending}?{query}", type="tertiary")


def _trajectory_table(rows: Sequence[TrajectoryRow]) -> pd.DataFrame:
    """Return the columns that a row has something in."""
    shown = [name for name in _COLUMNS if name not in _IF_ANY or any(map(_IF_ANY[name], rows))]
    return pd.DataFrame({name: [_COLUMNS[name][0](row) for row in rows] for name in shown})


_NUMBER, _TEXT = st.column_config.NumberColumn, st.column_config.TextColumn
_VERDICTS = st.column_config.MultiselectColumn(
    width=92, options=VERDICTS, color=["#0072B2", "#C0503A", "#8A6D10", "#7C4FB0", "#64748B"]
)
_ENTROPY = _NUMBER(width=70, format="%.3f", help="Mean token entropy at rollout, nats")
_VALID = _TEXT(width=56, help="Whether the chain of thought is valid, by the task's oracle")
_COLUMNS: dict[str, tuple[Callable[[TrajectoryRow], object], ColumnConfig]] = {
    "Id": (lambda row: row.trajectory_id, _NUMBER(width=64, help="Click a row to open the trajectory")),
    "Step": (lambda row: row.step, _NUMBER(width=56)),
    "Question": (lambda row: row.question_index, _NUMBER(width=76)),
    "Verdict": (lambda row: [row.verdict], _VERDICTS),
    "Reward": (lambda row: row.reward, _NUMBER(width=76)),
    "Tokens": (lambda row: row.num_tokens or None, _NUMBER(width=64)),
    "Entropy": (lambda row: row.mean_entropy, _ENTROPY),
    "Replays": (lambda row: row.num_replays, _NUMBER("Times replayed", help="How often, its question retired or not")),
    "Valid": (lambda row: _SIGNS[row.is_valid], _VALID),
    "Code": (lambda row: _SIGNS[row.has_code], _TEXT(width=56)),
    "Turns": (lambda row: row.num_turns, _NUMBER(width=56, help="How often the model began to write")),
    "Calls": (lambda row: row.num_tool_calls, _NUMBER(width=52, help="Tool calls")),
    "Failed": (lambda row: row.num_tool_errors, _NUMBER(width=58, help="Tool calls that failed")),
    "Text": (lambda row: escape_control_characters(row.text), _TEXT(width="large")),
}
_IF_ANY: dict[str, Callable[[TrajectoryRow], object]] = {
    "Verdict": lambda row: row.verdict,
    "Valid": lambda row: row.is_valid is not None,
    # What others recorded as text has no tokens, and says nothing of replays.
    **dict.fromkeys(("Tokens", "Entropy", "Replays"), lambda row: row.num_tokens),
    **dict.fromkeys(("Turns", "Calls", "Failed"), lambda row: row.num_turns is not None),
}
