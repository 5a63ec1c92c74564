"""Tables whose numbers are texts, such as `45.3` as printed or a mean with its interval."""

from collections.abc import Collection

import pandas as pd
import streamlit as st

from app.formats import NONE_SHOWN

_ROW_HEIGHT = 35
_MAX_ROWS_SHOWN = 30


def show(frame: pd.DataFrame, words: Collection[str], alt: str) -> None:
    """Show a whole table, with every column except `words` right-aligned, as numbers are."""
    st.dataframe(
        frame,
        hide_index=True,
        placeholder=NONE_SHOWN,
        row_height=_ROW_HEIGHT,
        height=_ROW_HEIGHT * (min(len(frame), _MAX_ROWS_SHOWN) + 1) + 3,
        column_config={str(name): st.column_config.Column(alignment="right") for name in frame if name not in words},
        alt=alt,
    )
