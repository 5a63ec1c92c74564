"""The results of evaluations and judges."""

from collections.abc import Mapping, Sequence

import pandas as pd
import streamlit as st

from exgrpo.app.components.widgets import data_table, figures, notice
from exgrpo.app.formats import counted, escape_control_characters, number, share
from exgrpo.app.queries.answers import ask
from exgrpo.db.queries import runs
from exgrpo.db.rows.judging import JudgeRow
from exgrpo.db.rows.scores import BenchmarkScoreRow


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
