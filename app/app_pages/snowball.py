"""Snowball: code in trajectories, how it spreads, what it does to chains of thought, and cases worth keeping."""

from collections.abc import Callable

import streamlit as st

from app.components.chains_of_thought import case_view, code_view, judges, thought_charts, verdicts
from app.components.widgets import address_choice, figures, notice, run_choice, run_state
from app.queries.answers import ask
from db.queries import code_analysis
from db.queries.cases import find_cases, sets_of_run
from db.queries.code_analysis import Spreading, share_timeline
from db.rows.runs import RunRow

VIEWS = ["Code and entropy", "Over steps", "Cases", "Saved cases"]
REFRESH_SECONDS = 5
MAX_WINDOW = 1000
CASES_PAGE_SIZE = 5
NUM_WINDOWS = 12
"""A run's steps divided by this number are the default window of the running mean."""


def _code(row: RunRow, judge: str | None) -> None:
    lines = ask(code_analysis.code_lines, row.run_id, judge)
    if not any(line.num_trajectories for line in lines):
        notice.show_empty("code_off", "No correct answer yet", "The table is over answer-correct trajectories.")
        return
    code_view.show_code(lines, judges.calibration_of(row.run_id, judge))
    sample = ask(code_analysis.entropy_points, row.run_id, judge)
    thought_charts.show_sampling(sample)
    by_code = thought_charts.densities_of(sample.points, thought_charts.CODE, "mean_entropy")
    by_verdict = thought_charts.densities_of(sample.points, thought_charts.CODE_AND_VALIDITY, "mean_entropy")
    with figures.grid("code"):
        figures.show_card(
            "Entropy by code", "density", by_code, "entropy-code",
            "Densities of mean token entropy of correct answers without and with code",
        )  # fmt: skip
        figures.show_card(
            "Entropy by code and verdict", "density", by_verdict, "entropy-code-valid",
            "Densities of mean token entropy by code and by verdict on the chain of thought",
        )  # fmt: skip


def _over_steps(row: RunRow, judge: str | None) -> None:
    window = st.number_input(
        "Mean over steps", 1, MAX_WINDOW, min(MAX_WINDOW, max(1, row.step // NUM_WINDOWS)), key="window",
        bind="query-params", width=180,
        help="Few trajectories are replayed in a step; each point is the mean of this many steps up to it",
    )  # fmt: skip
    code = ask(share_timeline, row.run_id, Spreading.CODE)
    invalid = ask(share_timeline, row.run_id, Spreading.INVALID, judge)
    with figures.grid("over-steps"):
        figures.show_card(
            "With code", "share of trajectories", thought_charts.shares(code, window), "code-shares",
            "Share of trajectories with code in rollouts, successes, replay buffer and replays over steps",
        )  # fmt: skip
        figures.show_card(
            "Chains not valid", "share of judged", thought_charts.shares(invalid, window), "invalid-shares",
            "Share of invalid chains of thought in rollouts, successes, replay buffer and replays over steps",
        )  # fmt: skip


def _cases(row: RunRow, judge: str | None) -> None:
    only_telling = st.toggle(
        "Only valid against not valid", key="telling", bind="query-params",
        help="Cases whose lowest-entropy success has a valid chain of thought and whose highest-entropy one has not",
    )  # fmt: skip
    key = f"num-cases-{row.run_id}"
    limit = st.session_state.get(key, CASES_PAGE_SIZE)
    cases = ask(find_cases, row.run_id, judge, limit=limit, only_telling=only_telling)
    if not cases:
        notice.show_empty(
            "compare", "No case yet", "A case needs a question with two correct answers in one step"
            + (", with the lower-entropy one valid and the other not." if only_telling else "."),
        )  # fmt: skip
        return
    st.caption("Sorted by verdict disagreement, code in the high-entropy answer only, entropy gap.")
    case_view.show_all(cases, ask(sets_of_run, row.run_id), "cases")
    if len(cases) == limit and st.button("Show more", icon=":material/expand_more:", key="more-cases"):
        st.session_state[key] = limit + CASES_PAGE_SIZE
        st.rerun()


def _show(row: RunRow, judge: str | None) -> None:
    refresh = REFRESH_SECONDS if run_state.is_live(row) else None
    views: dict[str, Callable[[RunRow, str | None], None]] = dict(
        zip(VIEWS, (_code, _over_steps, _cases, case_view.show_sets), strict=True)
    )
    name, tab = address_choice.tabs(VIEWS)
    with tab:
        is_live = name in VIEWS[:2]
        st.fragment(views[name], run_every=refresh if is_live else None)(row, judge)


run, beside = run_choice.show_header(
    "Snowball",
    "If a correct answer with wrong reasoning is replayed, the model learns the wrong reasoning and repeats it. "
    "The paper calls this the snowball effect, and takes unneeded code as its sign.",
)
if run is not None:
    with beside:
        chosen = verdicts.choose_judge(run)
    if run.step:
        _show(run, chosen)
    else:
        notice.show_empty("hourglass_empty", "No steps yet", "Code and chains of thought appear after the first step.")
