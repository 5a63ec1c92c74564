"""Entropy and judge: entropy against valid reasoning, verdicts next to trajectories, and the judges themselves."""

import streamlit as st

from app import address
from app.components.chains_of_thought import judges, thought_charts, validity, verdicts
from app.components.widgets import address_choice, figures, notice, run_choice, run_state
from app.queries.answers import ask
from db.queries import code_analysis, judging
from db.queries.verdicts import outcome_cells, wrong_answers
from db.rows.runs import RunRow
from jobs.evaluation.analysis.validity import read_wrong_answers, tabulate_validity

VIEWS = ["Entropy and validity", "Failures", "Policy entropy", "Verdicts", "Judges"]
REFRESH_SECONDS = 4


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
            "Signal strength", "AUC with 95% interval, 0.5: none", thought_charts.signal_strength(lines), "signal-auc",
            "Area under the curve of entropy and of perplexity by difficulty of the question",
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
    validity.show_validity(lines)


def _failures(row: RunRow, judge: str | None) -> None:
    validity.show_cells(ask(outcome_cells, row.run_id, judge))
    if judge is None:
        validity.show_near_misses(read_wrong_answers(ask(wrong_answers, row.run_id)))


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


def _show(row: RunRow, judge: str | None) -> None:
    refresh = REFRESH_SECONDS if run_state.is_live(row) else None
    views = dict(zip(VIEWS, (_entropy, _failures, thought_charts.show_policy_entropy, _verdicts, _judges), strict=True))
    name, tab = address_choice.tabs(VIEWS)
    with tab:
        if name in VIEWS[:1]:
            st.fragment(views[name], run_every=refresh)(row, judge)
        else:
            views[name](row, judge)


run, beside = run_choice.show_header(
    "Entropy and judge",
    "A correct answer can rest on wrong reasoning. Valid reasoning tends to have lower entropy, which is why ExGRPO "
    "replays the response with the lowest entropy.",
)
if run is not None:
    with beside:
        chosen = verdicts.choose_judge(run)
    if run.step:
        _show(run, chosen)
    else:
        notice.show_empty("hourglass_empty", "No steps yet", "Verdicts appear after the first step.")
