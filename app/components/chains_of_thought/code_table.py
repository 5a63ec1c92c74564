"""The paper's code table for a run, beside the numbers that the paper prints."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from app.components.chains_of_thought import thought_statistics
from app.components.chains_of_thought.thought_statistics import Calibration, PaperCodeLine
from app.components.widgets import exports
from app.formats import NONE_SHOWN, known, share
from db.rows.analysis import CodeLine

_PERCENT = 100.0
_ROW_HEIGHT = 33


def show(lines: Sequence[CodeLine], calibration: Calibration | None) -> None:
    """Show one row of the run and one of the paper for each difficulty, and how many answers were judged."""
    frame = table(lines, thought_statistics.paper_code_lines(), calibration)
    with st.container(border=True, gap="xxsmall", key="code-table"):
        with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
            st.markdown("**Entropy and CoT correctness, code off and on** &nbsp; :gray[:small[correct answers]]")
            exports.show(frame, "code-table")
        st.dataframe(
            frame,
            hide_index=True,
            placeholder=NONE_SHOWN,
            column_config=_columns(),
            row_height=_ROW_HEIGHT,
            height=_ROW_HEIGHT * (len(frame) + 1) + 2,
            alt="Entropy and share of valid chains of thought without and with code, this run beside the paper",
        )
        st.caption(_note(lines, calibration))


def table(lines: Sequence[CodeLine], paper: Sequence[PaperCodeLine], calibration: Calibration | None) -> pd.DataFrame:
    """Return the rows: this run, the paper's where it prints one, and all questions together."""
    lines_of_run = {(line.group, line.has_code): line for line in lines}
    printed = {row.group: row for row in paper}
    rows = []
    for group in dict.fromkeys(line.group for line in lines):
        off, on = lines_of_run[group, False], lines_of_run[group, True]
        rows.append(_run_row(group, off, on))
        if calibration is not None:
            rows.append(_corrected_row(group, off, on, calibration))
        if group in printed:
            rows.append(_paper_row(printed[group]))
    return pd.DataFrame(rows)


def _run_row(group: str, off: CodeLine, on: CodeLine) -> dict[str, object]:
    return {
        "Questions": group,
        "Source": "this run",
        "Entropy, no code": known(off.mean_entropy),
        "Entropy, code": known(on.mean_entropy),
        "CoT %, no code": known(_PERCENT * off.cot_correctness),
        "CoT %, code": known(_PERCENT * on.cot_correctness),
        "Difference": known(_PERCENT * (on.cot_correctness - off.cot_correctness)),
        "Interval, no code": _interval(thought_statistics.wilson(round(_valid(off)), off.num_judged)),
        "Interval, code": _interval(thought_statistics.wilson(round(_valid(on)), on.num_judged)),
        "Answers, no code": off.num_trajectories,
        "Answers, code": on.num_trajectories,
    }


def _corrected_row(group: str, off: CodeLine, on: CodeLine, calibration: Calibration) -> dict[str, object]:
    rates = [
        thought_statistics.correct_rate(line.num_valid_by_judge, line.num_by_judge, calibration) for line in (off, on)
    ]
    values = [_PERCENT * rate.value for rate in rates]
    return {
        "Questions": group,
        "Source": "corrected",
        "CoT %, no code": known(values[0]),
        "CoT %, code": known(values[1]),
        "Difference": known(values[1] - values[0]),
        "Interval, no code": _interval(rates[0]),
        "Interval, code": _interval(rates[1]),
    }


def _paper_row(row: PaperCodeLine) -> dict[str, object]:
    return {
        "Questions": row.group,
        "Source": "paper",
        "Entropy, no code": row.entropy_without,
        "Entropy, code": row.entropy_with,
        "CoT %, no code": row.correctness_without,
        "CoT %, code": row.correctness_with,
        "Difference": row.difference,
    }


def _columns() -> dict[str, ColumnConfig]:
    config = st.column_config
    numbers = {
        "Entropy": config.NumberColumn(format="%.4f", help="Mean token entropy, nats", width=104),
        "CoT %": config.NumberColumn(
            format="%.1f", help="Share of valid chains of thought among the judged", width=104
        ),
        "Answers": config.NumberColumn(format="localized", help="Correct answers, judged or not", width=116),
    }
    pairs = {f"{name}, {end}": column for name, column in numbers.items() for end in ("no code", "code")}
    others = {
        "Questions": config.TextColumn(width=84),
        "Source": config.TextColumn(width=84),
        "Difference": config.NumberColumn(format="%+.1f", help="With code minus without, in points", width=88),
    }
    return pairs | others


def _note(lines: Sequence[CodeLine], calibration: Calibration | None) -> str:
    num_judged = sum(line.num_judged for line in lines if line.group == "all")
    num_all = sum(line.num_trajectories for line in lines if line.group == "all")
    note = f"{num_judged:,} of {num_all:,} correct answers have a verdict; intervals are Wilson's of 95%, which "
    note += "take answers to one question as independent. The paper's rows are on-policy rollouts judged by Qwen3-32B."
    if calibration is not None:
        note += (
            f" Corrected for the judge's errors: sensitivity {share(calibration.sensitivity.value)}, specificity "
            f"{share(calibration.specificity.value)} on {calibration.num_items:,} labelled items."
        )
    return note


def _valid(line: CodeLine) -> float:
    return line.num_judged * line.cot_correctness if line.num_judged else 0.0


def _interval(rate: thought_statistics.Rate | thought_statistics.CorrectedRate) -> str | None:
    has_items = rate.num_items if isinstance(rate, thought_statistics.Rate) else rate.is_informative
    return f"{_PERCENT * rate.low:.1f} \N{EN DASH} {_PERCENT * rate.high:.1f}" if has_items else None
