"""A chosen bar of the replay buffer's charts, as the address names it, and the questions behind it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
import streamlit as st

from exgrpo.app.components.widgets import address_choice, data_table
from exgrpo.app.formats import counted, escape_control_characters, literal
from exgrpo.app.queries.answers import ask
from exgrpo.db.queries import buffer
from exgrpo.db.rows.display_names import shorten
from exgrpo.db.rows.replays import BufferedQuestionRow, BufferState

ADDRESS = "mark"
"""The parameter of the address that names the bar."""
MAX_QUESTIONS = 200
OUTSIDE, RETIRED = "outside", "retired"


@dataclass(frozen=True, slots=True)
class View:
    """The compared buffer states: a run after `step`, and the same run, or the one named `other`, after `base`."""

    run_id: str
    step: int
    base: int
    state: BufferState
    base_state: BufferState
    other: str = ""

    @property
    def now(self) -> str:
        """The step of the page, in words."""
        return f"step {self.step:,}" + (" of this run" if self.other else "")

    @property
    def then(self) -> str:
        """The step that it is compared with, in words."""
        return f"step {self.base:,}" + (f" of {self.other}" if self.other else "")

    def forward(self) -> "View":
        """Return the view of one run with the earlier step as its base."""
        if self.other or self.base <= self.step:
            return self
        return View(self.run_id, self.base, self.step, self.base_state, self.state)

    def ways(self) -> dict[int, tuple[str, str]]:
        """Return where each question was at the base and is now: a bucket, `RETIRED` or `OUTSIDE`."""
        states = (self.base_state, self.state)
        seen = {index for state in states for index in (*state.buckets, *state.retired)}
        return {index: (_location(self.base_state, index), _location(self.state, index)) for index in seen}

    def flows(self) -> Counter[tuple[str, str]]:
        """Return the number of questions by start and end location between the two steps."""
        return Counter(self.ways().values())


def _location(state: BufferState, question_index: int) -> str:
    return RETIRED if question_index in state.retired else str(state.buckets.get(question_index, OUTSIDE))


def show(view: View, bar: str) -> None:
    """Show the questions behind a chosen bar, each with a link to its trajectories."""
    indices = questions(view, bar)
    with st.container(border=True, key="behind"):
        st.markdown(f"**Questions: {literal(describe(bar))}**")
        if not indices:
            st.markdown(":gray[None at this step.]")
            return
        listed = indices[:MAX_QUESTIONS]
        more = f", the first {MAX_QUESTIONS} listed" if len(indices) > len(listed) else ""
        data_table.show_caption(
            f"{counted(len(indices), 'question')}{more}",
            lambda: _table(view, ask(buffer.buffered_questions, view.run_id, view.step, indices)),
            f"questions-after-step-{view.step}", key="behind",
        )  # fmt: skip
        rows = ask(buffer.buffered_questions, view.run_id, view.step, listed)
        frame = _table(view, rows)
        picked = data_table.pick(
            frame, f"behind-{bar}-{view.step}-{view.base}", "Questions behind the chosen bar",
            [str(row.question_index) for row in rows], most=9,
        )  # fmt: skip
    if picked is not None:
        query = {"run": view.run_id, "view": "Trajectories", "question-index": str(rows[picked].question_index)}
        st.switch_page("app_pages/run.py", query_params=query)


def questions(view: View, bar: str) -> list[int]:
    """Return the questions behind a bar, ascending; none for an unknown one."""
    kind, _, value = bar.partition(":")
    if kind == "bucket":
        return sorted(index for index, bucket in view.state.buckets.items() if str(bucket) == value)
    if kind == RETIRED:
        return sorted(view.state.retired)
    if kind == "flow":
        start, _, end = value.partition(":")
        return sorted(index for index, way in view.ways().items() if way == (start, end))
    numbers = {"rollout": "rollout_step", "replays": "num_replays"}
    stored = ask(buffer.stored_trajectories, view.run_id, view.step) if kind in numbers else []
    return sorted({row.question_index for row in stored if str(getattr(row, numbers[kind])) == value})


def describe(bar: str) -> str:
    """Return what a chosen bar means, in words."""
    kind, _, value = bar.partition(":")
    if kind == "flow":
        start, _, end = value.partition(":")
        return f"{location_name(start)} → {location_name(end)}"
    names = {
        "bucket": f"in bucket {value}",
        RETIRED: "retired",
        "rollout": f"with a trajectory generated in step {value}",
        "replays": f"with a trajectory replayed {value} time{'' if value == '1' else 's'}",
    }
    return names.get(kind, "unknown bar")


def choose(label: str, bars: Sequence[str], key: str) -> None:
    """Show a choice among bars; the chosen one is kept in the address."""
    current = st.query_params.get(ADDRESS)
    st.selectbox(
        label, bars, index=None, placeholder="Choose which", format_func=describe, width=320,
        **address_choice.bound(ADDRESS, current if current in bars else None, key),
    )  # fmt: skip


def location_name(location: str) -> str:
    """Return the displayed name of a bucket, of the retired set, or of neither."""
    return {OUTSIDE: "not stored", RETIRED: "retired"}.get(location, f"bucket {location}")


def _table(view: View, rows: Sequence[BufferedQuestionRow]) -> pd.DataFrame:
    ways = view.ways()
    names = [tuple(map(location_name, ways.get(row.question_index, (OUTSIDE, OUTSIDE)))) for row in rows]
    return pd.DataFrame(
        {
            "Question": [row.question_index for row in rows],
            escape_control_characters(f"After {view.then}"): [was for was, _ in names],
            escape_control_characters(f"After {view.now}"): [now for _, now in names],
            "Stored": [row.num_stored for row in rows],
            "Replays": [row.num_replays for row in rows],
            "Last replayed": [row.last_replayed_step for row in rows],
            "Prompt": [escape_control_characters(shorten(row.prompt_text)) for row in rows],
        }
    )
