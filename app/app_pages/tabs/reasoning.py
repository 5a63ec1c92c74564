"""Run, Reasoning: entropy against valid reasoning, code and how it spreads, cases, verdicts and judges."""

from collections.abc import Callable

import streamlit as st

from exgrpo.app import address
from exgrpo.app.components.chains_of_thought import case_view, code_view, judges, thought_charts, verdicts
from exgrpo.app.components.widgets import address_choice, figures, notice, run_state
from exgrpo.app.queries.answers import ask
from exgrpo.db.queries import code_analysis, judging
from exgrpo.db.queries.cases import find_cases, sets_of_run
from exgrpo.db.queries.code_analysis import Spreading, share_timeline
from exgrpo.db.rows.runs import RunRow
from exgrpo.jobs.evaluation.analysis.report import tabulate_validity

REFRESH_SECONDS = 4
MAX_WINDOW = 1000
CASES_PAGE_SIZE = 5
NUM_WINDOWS = 12
"""A run's steps divided by this number are the default window of the running mean."""


def _entropy(row: RunRow, judge: str | None) -> None:
    sample = ask(code_analysis.entropy_points, row.run_id, judge)
    lines = tabulate_validity(sample.points)
    if not any(line.num_valid or line.num_invalid for line in lines):
        text = "Start a judge under **Judges**; on built-in tasks the oracle judges by itself."
        notice.show_empty("gavel", "No verdict yet", text)
        return
    thought_charts.show_sampling(sample)
    with figures.grid("entropy"):
        figures.show_card(
            "Entropy by validity", "density",
            thought_charts.densities_of(sample.points, thought_charts.VALIDITY, "mean_entropy"), "entropy-validity",
            "Densities of mean token entropy of valid and of invalid chains of thought",
        )  # fmt: skip
        figures.show_card(
            "Entropy of valid chains", "density",
            thought_charts.densities_of(sample.points, thought_charts.VALID_BY_DIFFICULTY, "mean_entropy"),
            "entropy-difficulty", "Densities of mean token entropy of valid chains on easy, medium and hard questions",
        )  # fmt: skip
        figures.show_card(
            "Perplexity by validity", "density",
            thought_charts.densities_of(sample.points, thought_charts.VALIDITY, "perplexity"), "perplexity-validity",
            "Densities of perplexity of valid and of invalid chains of thought",
        )  # fmt: skip
        figures.show_card(
            "Mean entropy", "nats per token", thought_charts.mean_signals(lines, "entropy"), "mean-entropy",
            "Mean entropy of valid and invalid chains by difficulty",
        )  # fmt: skip
        figures.show_card(
            "Mean perplexity", "exp of the mean NLL", thought_charts.mean_signals(lines, "perplexity"),
            "mean-perplexity", "Mean perplexity of valid and invalid chains by difficulty",
        )  # fmt: skip
    thought_charts.show_validity(lines)


def _code(row: RunRow, judge: str | None) -> None:
    lines = ask(code_analysis.code_lines, row.run_id, judge)
    if not any(line.num_trajectories for line in lines):
        notice.show_empty("code_off", "No correct answer yet", "The table is over answer-correct trajectories.")
        return
    code_view.show_code(lines, judges.calibration_of(row.run_id, judge))
    fold = st.expander("Rules that detect code", icon=":material/rule:", key="code-rules-fold", on_change="rerun")
    if fold.open:
        with fold:
            code_view.show_rules(ask(code_analysis.rule_counts, row.run_id))
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


def _verdicts(row: RunRow, judge: str | None) -> None:
    verdicts.show_tiles(
        ask(code_analysis.code_lines, row.run_id, judge), judges.calibration_of(row.run_id, judge),
        is_oracle=judge is None and verdicts.has_oracle(row.run_id),
    )  # fmt: skip
    opened = address.whole_number("trajectory")
    verdicts.show_list(row.run_id, judge, opened)
    if opened is None:
        return
    judged = ask(judging.get_verdicts, row.run_id, opened, judge)
    if judged is None:
        notice.show_no_such_trajectory()
    else:
        verdicts.show(judged)


def _jobs(row: RunRow) -> None:
    judges.show(ask(judging.list_judges, row.run_id))


def _judges(row: RunRow, judge: str | None) -> None:
    st.fragment(_jobs, run_every=REFRESH_SECONDS)(row)
    st.subheader("Start a judge", anchor=False)
    judges.show_form(row.run_id, has_oracle=verdicts.has_oracle(row.run_id))
    judges.show_agreement(ask(judging.agreement, row.run_id, judge))
    if judge is not None:
        judges.show_calibration(judges.calibration_of(row.run_id, judge))
        _issues(judge)
    judges.show_prompts([job for job in ask(judging.list_judges) if job.num_votes])


def _issues(judge: str) -> None:
    by_title = {
        "Issues named": ask(judging.count_issues, judge),
        "Votes without a verdict": ask(judging.count_reasons, judge),
    }
    for title, counts in by_title.items():
        if counts:
            st.markdown(f"**{title}**")
            st.text(", ".join(f"{name} {count:,}" for name, count in counts.items()))


_VIEWS: dict[str, Callable[[RunRow, str | None], None]] = {
    "Entropy": _entropy, "Code": _code, "Over steps": _over_steps, "Cases": _cases, "Saved cases": case_view.show_sets,
    "Verdicts": _verdicts, "Judges": _judges,
}  # fmt: skip
VIEWS = list(_VIEWS)
_LIVE = VIEWS[:3]


def show(row: RunRow) -> None:
    """Show what verdicts and code say of the run's reasoning, by the chosen judge."""
    if not row.step:
        notice.show_empty("hourglass_empty", "No steps yet", "Code and verdicts appear after the first step.")
        return
    words, choice = st.columns([3, 1], vertical_alignment="center")
    words.caption(
        "A correct answer can rest on wrong reasoning. If it is replayed, the model learns the wrong reasoning and "
        "repeats it. The paper calls this the snowball effect, and takes unneeded code as its sign."
    )
    with choice:
        judge = verdicts.choose_judge(row)
    name, tab = address_choice.tabs(VIEWS, address_choice.PART, ("set", "trajectory", "which"))
    with tab:
        if name in _LIVE:
            st.fragment(_VIEWS[name], run_every=REFRESH_SECONDS if run_state.is_live(row) else None)(row, judge)
        else:
            _VIEWS[name](row, judge)
