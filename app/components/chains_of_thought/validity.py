"""Valid against invalid chains of thought in numbers."""

import math
from collections.abc import Sequence

import pandas as pd
import streamlit as st

from exgrpo.app.components.widgets import data_table
from exgrpo.jobs.evaluation.analysis.report import ValidityLine

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
