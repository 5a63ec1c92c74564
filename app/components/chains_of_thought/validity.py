"""Valid against invalid chains of thought in numbers, and failures that may be worth replaying."""

import math
from collections.abc import Sequence

import pandas as pd
import streamlit as st

from app.components.widgets import data_table
from app.formats import escape_control_characters, known, share
from db.rows.chains_of_thought import OutcomeCell
from db.statistics import half_of_mean
from jobs.evaluation.analysis.validity import ReadAnswer, ValidityLine

_AREA, _MEAN = "%.2f", "mean"
_FIELDS = {
    "Valid": ("num_valid", "localized"),
    "Not valid": ("num_invalid", "localized"),
    "Entropy, valid": ("entropy_valid", _MEAN),
    "Entropy, not valid": ("entropy_invalid", _MEAN),
    "Entropy AUC": ("entropy_auc", _AREA),
    "Perplexity, valid": ("perplexity_valid", _MEAN),
    "Perplexity, not valid": ("perplexity_invalid", _MEAN),
    "Perplexity AUC": ("perplexity_auc", _AREA),
}
"""The field of `ValidityLine` and the format of each column."""
MAX_SHOWN = 50
_VERDICTS = {True: "valid", False: "not valid", None: "no verdict"}
_SHOWN_CHARACTERS = 200


def show_validity(lines: Sequence[ValidityLine]) -> None:
    """Show one row for each group of questions; a value that cannot be computed is left empty."""
    fields = {
        name: [_TEXTS[text](line, field) if text in _TEXTS else getattr(line, field) for line in lines]
        for name, (field, text) in _FIELDS.items()
    }
    data_table.show_card(
        "Valid against not valid chains", pd.DataFrame({"Questions": [line.group for line in lines], **fields}),
        "entropy-validity-table",
        "Entropy and perplexity of valid and invalid chains with the AUC of each, by difficulty",
        {name: st.column_config.NumberColumn(format=text) for name, (_, text) in _FIELDS.items() if text not in _TEXTS},
        "Correct answers with a verdict; all of them, with those of groups without a wrong answer, which are neither "
        "easy nor hard. Intervals of means are of 95%. An AUC is the chance that a chain that is not valid "
        "scores higher than a valid one: 1 = perfect separation.",
    )  # fmt: skip


def _mean(line: ValidityLine, field: str) -> str:
    value, half = float(getattr(line, field)), line.half_intervals[field]
    if math.isnan(value):
        return ""
    return f"{value:z.4f}" if math.isnan(half) else f"{value:z.4f} ± {half:.4f}"


_TEXTS = {_MEAN: _mean}


def show_cells(cells: Sequence[OutcomeCell]) -> None:
    """Show one row for each answer and verdict."""
    total = sum(cell.num_trajectories for cell in cells)
    frame = pd.DataFrame(
        {
            "Answer": ["right" if cell.is_correct else "wrong" for cell in cells],
            "Reasoning": [_VERDICTS[cell.is_valid] for cell in cells],
            "Trajectories": [cell.num_trajectories for cell in cells],
            "%": [100 * cell.num_trajectories / total for cell in cells],
            "Entropy": [known(cell.mean_entropy) for cell in cells],
            "± 95%": [known(half_of_mean(cell.entropy_deviation, cell.num_entropies)) for cell in cells],
            "Deviation": [known(cell.entropy_deviation) for cell in cells],
        }
    )
    number = st.column_config.NumberColumn
    entropy = number(format="%.4f", help="Mean over trajectories, nats per token")
    data_table.show_card(
        "Answers against reasoning", frame, "answers-against-reasoning",
        "Trajectories and their entropy by answer and verdict on the reasoning",
        {"Trajectories": number(format="localized"), "%": number(format="%.1f"), "Entropy": entropy,
         "± 95%": number(format="%.4f", help="Half of the mean's 95% interval"), "Deviation": entropy},
        "The oracles of the built-in tasks call reasoning valid only where the answer is right too: their failures "
        "are below, by the steps before the first fault. Deviations are between trajectories.",
    )  # fmt: skip


def show_near_misses(read: Sequence[ReadAnswer]) -> None:
    """Show how far wrong answers were right, and the nearest misses."""
    if not read:
        return
    shown = read[:MAX_SHOWN]
    answers = [item.answer for item in shown]
    frame = pd.DataFrame(
        {
            "Right steps": [f"{item.num_good_steps} of {item.num_steps}" for item in shown],
            "Entropy": [answer.mean_entropy for answer in answers],
            "Correct in its group": [share(answer.correctness_rate) for answer in answers],
            "Step": [answer.step for answer in answers],
            "Question": [answer.question_index for answer in answers],
            "Trajectory": [answer.trajectory_id for answer in answers],
            "Response": [escape_control_characters(answer.text[-_SHOWN_CHARACTERS:]) for answer in answers],
        }
    )
    columns = {
        "Right steps": st.column_config.TextColumn(help="Before the first fault, of those that are needed"),
        "Entropy": st.column_config.NumberColumn(format="%.4f", help="Nats per token"),
        "Response": st.column_config.TextColumn("End of the response", width="large"),
    }
    alt = "Wrong answers with the most right steps first"
    data_table.show_card("Near misses", frame, "near-misses", alt, columns, near_miss_sentence(read))


def near_miss_sentence(read: Sequence[ReadAnswer]) -> str:
    """Return how many wrong answers have all of the right steps that their question needs, or all but one."""
    num_whole = sum(item.num_missing == 0 for item in read)
    num_last = sum(item.num_missing == 1 and item.num_good_steps > 0 for item in read)
    return (
        f"Of the newest **{len(read):,}** wrong answers that the oracle reads, **{num_whole:,}** have as many right "
        f"steps before the first fault as their question needs, and **{num_last:,}** have one fewer, but at least one."
    )
