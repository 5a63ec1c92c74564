"""Evaluations and judges: those under way, and their results."""

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

import pandas as pd
import streamlit as st

from exgrpo.app.components.widgets import data_table, figures, notice, run_state
from exgrpo.app.formats import ago, counted, escape_control_characters, number, share
from exgrpo.app.queries.answers import ask
from exgrpo.app.queries.benchmarks import broken_evaluations, list_scores, live_evaluations
from exgrpo.app.settings import runs_root
from exgrpo.db.queries import runs
from exgrpo.db.rows.judging import JudgeRow
from exgrpo.db.rows.runs import RunRow
from exgrpo.db.rows.scores import BenchmarkScoreRow
from exgrpo.jobs.actions import run_actions
from exgrpo.jobs.actions.progress import job_progress
from exgrpo_core.recording.run_status import BROKEN, RunStatus


def show_scores(rows: Sequence[BenchmarkScoreRow]) -> None:
    """Show one row per benchmark and scheme of scoring, and the means of the parts of a training reward."""
    if not rows:
        text = "A benchmark's score appears when its last question is answered."
        notice.show_empty("leaderboard", "No score yet", text)
        return
    number = st.column_config.NumberColumn
    columns = {
        "Score": number(format="%.1f%%"),
        "From": number("95% from", format="%.1f%%", help="Ends of the interval, clustered over questions"),
        "To": number("to", format="%.1f%%"),
        "Truncated": number(format="%.1f%%", help="Answers cut at the length limit"),
        "Mean tokens": number(format="%.0f"),
    }
    alt = "Scores of the evaluation by benchmark and scheme"
    data_table.show_titled("Scores", score_table(rows), "scores", alt, columns)
    # The schemes of a benchmark have the same rewards.
    means = {(row.title, part): mean for row in rows for part, mean in row.reward_means.items()}
    if means:
        names = [tuple(map(escape_control_characters, name)) for name in means]
        rewards = pd.DataFrame(names, columns=["Benchmark", "Part"]).assign(Mean=list(means.values()))
        alt = "Mean of each part of the training reward by benchmark"
        data_table.show_titled("Rewards", rewards, "rewards", alt, {"Mean": number(format="%.4f")})
        text = "Means over all responses before weights. A part for correct answers follows the score as rewarded."
        st.caption(text)


def score_table(rows: Sequence[BenchmarkScoreRow]) -> pd.DataFrame:
    """Return one row per benchmark and scheme of scoring, scores in percent."""
    return pd.DataFrame(
        {
            "Benchmark": [escape_control_characters(row.title) for row in rows],
            "Scored": [row.scheme for row in rows],
            "Measure": [row.metric for row in rows],
            "Score": [100 * row.score for row in rows],
            "From": [100 * row.interval[0] for row in rows],
            "To": [100 * row.interval[1] for row in rows],
            "Questions": [row.num_questions for row in rows],
            "Mean tokens": [row.mean_tokens for row in rows],
            "Truncated": [100 * row.truncated_share for row in rows],
        }
    )


_COUNTS = (("Valid", "num_valid"), ("Not valid", "num_invalid"), ("Unjudged", "num_unjudged"))


def show_judge(rows: Sequence[JudgeRow], reasons: Mapping[str, int]) -> None:
    """Show counts of verdicts over responses, what they cost, and why votes gave no verdict."""
    if not rows:
        notice.show_empty("gavel", "No verdict yet", "Verdicts appear after the judge's first votes.")
        return
    for row in rows:
        tiles = st.columns(4, gap="small")
        for tile, (name, field) in zip(tiles, _COUNTS, strict=False):
            count = getattr(row, field)
            below = share(count / row.num_responses)
            figures.show_tile(tile, name, number(count), below, "Responses, by the majority of their votes")
        below = counted(row.num_votes, "vote")
        figures.show_tile(tiles[3], "Tokens", number(row.num_tokens), below, "Prompt and answer tokens of the judge")
        judged = ask(runs.get_run, row.source)
        source = judged.name if judged else row.source
        st.text(escape_control_characters(f"Judge {row.judge}, prompt {row.prompt}, on {source}"))
    if reasons:
        frame = pd.DataFrame({"Why a vote gave no verdict": list(reasons), "Votes": list(reasons.values())})
        data_table.show(frame, "unjudged-votes", "Reasons of votes without a verdict")


REFRESH_SECONDS = 3
CHECK_SECONDS = 5
"""How often the list is read again while no evaluation is queued or running."""
UNNAMED = "evaluation"


def show_evaluations(num_scores: int, scheme: str) -> None:
    """Show the evaluations; the page reruns when there are new scores."""
    is_live = bool(live_evaluations())
    st.fragment(_show_evaluations, run_every=REFRESH_SECONDS if is_live else CHECK_SECONDS)(num_scores, scheme, is_live)


def _show_evaluations(num_scores: int, scheme: str, was_live: bool) -> None:
    live, broken = live_evaluations(), broken_evaluations()
    if len(list_scores(scheme)) != num_scores or bool(live) != was_live:
        st.rerun(scope="app")
    if not live and not broken:
        return
    with st.container(border=True, gap="xsmall", key="evaluations"):
        num_queued = sum(row.status == RunStatus.QUEUED for row in live)
        counts = f"{len(live) - num_queued:,} running, {num_queued:,} queued"
        st.markdown(f"**Evaluations** &nbsp; :gray[:small[{counts}]]")
        for row in [*live, *broken]:
            _evaluation_row(row)


def _evaluation_row(row: RunRow) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        run_state.show(row)
        st.text(escape_control_characters(_title(row)), width="content")
        st.space("stretch")
        progress = job_progress(runs_root(), row.run_id) if row.status == RunStatus.RUNNING else None
        if progress is not None:
            done, total = progress
            st.progress(
                min(1.0, done / total) if total else 0.0, text=f"{done:,} of {counted(total, 'question')}", width=240
            )
        else:
            st.caption(ago(row.created_at), width="content")
        st.page_link("app_pages/run.py", label="Open", icon=":material/open_in_new:", query_params={"run": row.run_id})
        is_broken = row.status in BROKEN
        if is_broken and st.button("Dismiss", key=f"dismiss-{row.run_id}", help="Archive it; Runs lists it on request"):
            with notice.refusals("Not archived"):
                run_actions.archive(runs_root(), row.run_id, is_archived=True)
                st.rerun()
    if row.status_reason:
        st.text(escape_control_characters(row.status_reason))


def _title(row: RunRow) -> str:
    if row.name != UNNAMED:
        return row.name
    path = PurePosixPath(row.model)
    return f"{path.name if path.is_absolute() else row.model} on {row.dataset}"
