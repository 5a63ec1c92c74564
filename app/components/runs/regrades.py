"""How recorded answers were graded again: both grades, and every answer on which they differ."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from app.components.widgets import exports
from app.formats import escape_control_characters, literal
from app.requests import RecordedRegrading

MAX_SHOWN = 500


def show(regradings: Sequence[RecordedRegrading]) -> None:
    """Show each grading: how many answers were and are correct, and which changed."""
    for number, recorded in enumerate(regradings):
        st.subheader("Graded again", anchor=False)
        counts, changed = counts_table(recorded), changes_table(recorded)
        st.caption(
            f"{recorded.regrading.num_answers:,} recorded answers, now by grader {literal(recorded.grader_version)}; "
            f"nothing was sampled, and the earlier grades are kept. {len(changed):,} grades changed."
        )
        st.dataframe(
            counts, hide_index=True, key=f"regrade-counts-{number}", alt="Correct answers by scheme, before and now",
            column_config=dict.fromkeys(counts.columns[1:], st.column_config.NumberColumn(format="localized")),
        )  # fmt: skip
        if changed.empty:
            continue
        exports.show_heading("What changed", changed, f"regrade-{recorded.scheme}")
        st.dataframe(
            changed.head(MAX_SHOWN), hide_index=True, key=f"regrade-changes-{number}",
            alt="Answers whose grade changed",
        )  # fmt: skip
        if len(changed) > MAX_SHOWN:
            st.caption(f"The first {MAX_SHOWN:,} of {len(changed):,}; Export has all.")


def counts_table(recorded: RecordedRegrading) -> pd.DataFrame:
    """Return one row per scheme: correct answers before and now."""
    before, now = recorded.regrading.num_correct_before, recorded.regrading.num_correct_after
    return pd.DataFrame(
        {
            "Scheme": list(before),
            "Correct before": list(before.values()),
            "Correct now": [now.get(scheme) for scheme in before],
        }
    )


def changes_table(recorded: RecordedRegrading) -> pd.DataFrame:
    """Return one row per answer and scheme whose grade changed."""
    changes = recorded.regrading.changes
    return pd.DataFrame(
        {
            "Answer": [escape_control_characters(change.answer) for change in changes],
            "Scheme": [change.scheme for change in changes],
            "Before": [change.before or "none" for change in changes],
            "Now": [change.after for change in changes],
        }
    )
