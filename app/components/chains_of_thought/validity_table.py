"""Valid against invalid chains of thought in numbers, by difficulty."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from app.components.chains_of_thought.thought_statistics import ValidityLine
from app.components.widgets import exports
from app.formats import NONE_SHOWN


def show(lines: Sequence[ValidityLine]) -> None:
    """Show one row for each group of questions."""
    frame = table(lines)
    with st.container(border=True, gap="xxsmall", key="validity-table"):
        with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
            st.markdown("**Valid against invalid chains** &nbsp; :gray[:small[correct answers with a verdict]]")
            exports.show(frame, "entropy-validity-table")
        st.dataframe(
            frame, hide_index=True, placeholder=NONE_SHOWN,
            column_config={name: st.column_config.NumberColumn(format=_format(name)) for name in frame.columns[1:]},
            alt="Entropy and perplexity of valid and invalid chains with the AUC of each, by difficulty",
        )  # fmt: skip
        st.caption("An AUC is the chance that an invalid chain scores higher than a valid one: 1 = perfect separation.")


def table(lines: Sequence[ValidityLine]) -> pd.DataFrame:
    """Return one row per group; a value that cannot be computed is left empty."""
    names = {
        "Valid": "num_valid",
        "Not valid": "num_invalid",
        "Entropy, valid": "entropy_valid",
        "Entropy, not valid": "entropy_invalid",
        "Entropy AUC": "entropy_auc",
        "Perplexity, valid": "perplexity_valid",
        "Perplexity, not valid": "perplexity_invalid",
        "Perplexity AUC": "perplexity_auc",
    }
    rows = [{"Questions": line.group} | {name: getattr(line, field) for name, field in names.items()} for line in lines]
    return pd.DataFrame(rows)


def _format(name: str) -> str:
    if name.endswith("AUC"):
        return "%.3f"
    return "%.4f" if "," in name else "localized"
