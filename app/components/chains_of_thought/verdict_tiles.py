"""How a run's chains of thought were judged, in a few figures, corrected for the judge's errors where it is known."""

from collections.abc import Sequence

import streamlit as st

from app.components.chains_of_thought import judge_trust, thought_statistics
from app.components.chains_of_thought.thought_statistics import Calibration
from app.formats import NONE_SHOWN, share
from db.rows.analysis import ALL, CodeLine


def show(lines: Sequence[CodeLine], calibration: Calibration | None, *, is_oracle: bool) -> None:
    """Show how many answers are judged, the share of valid ones, and the corrected share."""
    all_lines = [line for line in lines if line.group == ALL]
    num_all, num_judged = sum(line.num_trajectories for line in all_lines), sum(line.num_judged for line in all_lines)
    num_valid = sum(round(line.cot_correctness * line.num_judged) for line in all_lines if line.num_judged)
    rate = thought_statistics.wilson(num_valid, num_judged)
    figures = [
        ("Correct answers", f"{num_all:,}", "fresh rollouts"),
        ("Judged", f"{num_judged:,}", share(num_judged / num_all) if num_all else NONE_SHOWN),
        ("Valid chains", share(rate.value), judge_trust.interval(rate) if num_judged else "no verdict yet"),
        ("Corrected", *_corrected(all_lines, calibration, is_oracle=is_oracle)),
    ]
    for column, (label, value, below) in zip(st.columns(len(figures), gap="small"), figures, strict=True):
        column.metric(label, value, below, delta_color="off", delta_arrow="off", border=True, height="stretch")


def _corrected(lines: Sequence[CodeLine], calibration: Calibration | None, *, is_oracle: bool) -> tuple[str, str]:
    if is_oracle:
        return NONE_SHOWN, "the oracle is exact"
    if calibration is None:
        return NONE_SHOWN, "judge not calibrated"
    num_valid, num_judged = sum(line.num_valid_by_judge for line in lines), sum(line.num_by_judge for line in lines)
    rate = thought_statistics.correct_rate(num_valid, num_judged, calibration)
    if not rate.is_informative:
        return NONE_SHOWN, "judge no better than chance"
    return share(rate.value), judge_trust.interval(rate)
