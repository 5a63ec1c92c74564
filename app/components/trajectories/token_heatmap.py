"""A trajectory token by token: coloured by entropy, negative log-probability or importance ratio, as recorded."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from exgrpo.app import theme
from exgrpo.app.components.widgets import data_table, figures, shown_text
from exgrpo.app.components.widgets.curve_view import Line
from exgrpo.app.components.widgets.shown_text import Part
from exgrpo.app.formats import counted, escape_control_characters, number
from exgrpo.app.theme import Look

MAX_TOKENS = 1500
"""Tokens on one sheet; longer trajectories have several."""
MAX_LISTED = 50_000
"""Of a longer trajectory the table lists the tokens of the sheet only."""
_NO_TEXTS = " Ids are shown: the texts need the run's tokenizer and the package tokenizers."
_STRONGEST = 0.62
"""Opacity behind the token of the largest value: text stays readable on it in both themes."""


@dataclass(frozen=True, slots=True)
class TokenValues:
    """Per-token values of one trajectory under one policy; nats. An empty list is not known."""

    token_ids: list[int]
    texts: list[str]
    entropies: list[float]
    log_probs: list[float]
    behavior_log_probs: list[float]

    def text_of(self, position: int) -> str:
        """Return the text of the token at `position`, from 0; its id where texts are not known."""
        return self.texts[position] if self.texts else f"⟨{self.token_ids[position]}⟩ "

    @property
    def log_ratios(self) -> list[float]:
        """Logarithms of the importance ratios pi_now / pi_then; none for a fresh trajectory."""
        pairs = zip(self.log_probs, self.behavior_log_probs, strict=False)
        return [now - then for now, then in pairs]


_QUANTITIES: dict[str, tuple[str, Callable[[TokenValues], list[float]]]] = {
    "Entropy": ("nats", lambda values: values.entropies),
    "-log p": ("negative log-likelihood, nats", lambda values: [-value for value in values.log_probs]),
    "Ratio": ("log(π now / π then)", lambda values: values.log_ratios),
}


def from_recorded(data: Mapping[str, list[Any] | None] | None) -> TokenValues | None:
    """Return the recorded values of each token, or None if tokens were not stored."""
    if data is None or data["token_ids"] is None:
        return None
    columns = (data[name] or [] for name in ("texts", "entropies", "log_probs", "behavior_log_probs"))
    return TokenValues(data["token_ids"], *columns)


def show(values: TokenValues, key: str) -> None:
    """Show the tokens coloured by the chosen quantity, its course, and the raw numbers."""
    offered = [name for name, (_, of) in _QUANTITIES.items() if of(values)]
    if not offered:
        st.markdown(":gray[Token ids were kept without entropies or log-probs.]")
        return
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        chosen = st.segmented_control(
            "Colour by", offered, default=offered[0], required=True, key="colour", bind="query-params",
            label_visibility="collapsed",
        )  # fmt: skip
        sheet = _sheet(len(values.token_ids), key)
    unit, of = _QUANTITIES[chosen]
    numbers = np.asarray(of(values), dtype=np.float64)
    span = slice(sheet * MAX_TOKENS, (sheet + 1) * MAX_TOKENS)
    st.caption(_legend(chosen, unit, numbers) + ("" if values.texts else _NO_TEXTS))
    with st.container(border=True, key=f"tokens-{key}"):
        shown_text.show_marked(parts(values, chosen, numbers, span))
    figures.show_card(
        f"{chosen} by position", unit, _course(numbers, chosen), f"course-{key}-{chosen}",
        f"{chosen} of each token by its position in the response",
    )  # fmt: skip
    with st.expander("Raw tokens", icon=":material/table_rows:", key=f"raw-{key}"):
        listed = table(values, span if len(values.token_ids) > MAX_LISTED else slice(None))
        data_table.show(listed, "tokens", "Tokens and their values", most=8, key=f"tokens-{key}")


def parts(values: TokenValues, name: str, numbers: np.ndarray, span: slice) -> list[Part]:
    """Return the tokens of a sheet as coloured parts; colour grows with the value, ratios have two sides."""
    colours = theme.palette()
    top = float(np.nanmax(np.abs(numbers), initial=0.0)) or 1.0
    pieces = []
    for position in range(*span.indices(len(values.token_ids))):
        value = float(numbers[position])
        strength = 0.0 if math.isnan(value) else min(1.0, abs(value) / top) * _STRONGEST
        colour = colours.fresh if name != "Ratio" or value < 0 else colours.held_out
        text = values.text_of(position).replace("\n", "↵\n")
        pieces.append(Part(text, figures.faded(colour, strength) if strength > 0.01 else "", _note(values, position)))
    return pieces


def _course(numbers: np.ndarray, name: str) -> go.Figure | None:
    if not numbers.size:
        return None
    range_mode = {"rangemode": "normal" if name == "Ratio" else "tozero"}
    figure = figures.new_figure(150, "position, tokens", y=range_mode)
    colour = theme.palette().held_out if name == "Ratio" else theme.palette().fresh
    positions = np.arange(1, numbers.size + 1, dtype=np.float64)
    figures.add_line(figure, "", Line(positions, numbers.astype(np.float64)), Look(colour))
    return figure


def table(values: TokenValues, span: slice = slice(None)) -> pd.DataFrame:
    """Return one row per token of the span."""
    positions = range(1, len(values.token_ids) + 1)[span]
    return pd.DataFrame(
        {
            "Position": positions,
            "Token id": values.token_ids[span],
            "Text": [
                escape_control_characters(values.text_of(position - 1)).replace("\n", "↵") for position in positions
            ],
            "Entropy": _column(values.entropies[span], len(positions)),
            "Log-prob": _column(values.log_probs[span], len(positions)),
            "Log-prob then": _column(values.behavior_log_probs[span], len(positions)),
        }
    )


def _column(numbers: Sequence[float], size: int) -> list[float | None]:
    return list(numbers) if numbers else [None] * size


def _sheet(num_tokens: int, key: str) -> int:
    num_sheets = max(1, math.ceil(num_tokens / MAX_TOKENS))
    if num_sheets == 1:
        return 0
    return int(st.number_input("Sheet", 1, num_sheets, key=f"sheet-{key}", width=120)) - 1


def _legend(name: str, unit: str, numbers: np.ndarray) -> str:
    mean, top = float(np.nanmean(numbers)), float(np.nanmax(np.abs(numbers)))
    sides = (
        "Blue: less likely now, orange: more likely now; "
        if name == "Ratio"
        else "The stronger the colour, the larger the value; "
    )
    return f"{sides}mean {number(mean)}, largest {number(top)} ({unit}), {counted(numbers.size, 'token')}"


def _note(values: TokenValues, position: int) -> str:
    numbers = (("entropy", values.entropies), ("log π", values.log_probs), ("log π then", values.behavior_log_probs))
    facts = [f"{name} {number(column[position])}" for name, column in numbers if column]
    return " · ".join([f"token {position + 1}, id {values.token_ids[position]}", *facts])
