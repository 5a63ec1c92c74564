"""All curves of a run, in the groups of the paper."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import streamlit as st

from app.components.replay_buffer import buffer_area, ratio_bands
from app.components.widgets import curves, empty_state
from app.components.widgets.curves import Chart, Series
from db.rows.runs import EvaluationRow

KEYS = (*curves.KEYS, *buffer_area.KEYS)
"""Every metric that these charts need, to be read at once."""


def show(
    series: Series, evaluations: Sequence[EvaluationRow], ratios: Mapping[int, Sequence[float]] | None, key: str
) -> None:
    """Show the scores across the page, then each group two charts a row.

    `ratios` are those of replayed trajectories by step, None for a run that does not replay.
    """
    if not evaluations and not any(series.values()):
        empty_state.show("show_chart", "No steps yet", "The curves begin with the first step.")
        return
    curves.card(curves.PASS_RATES, curves.pass_rates(series, evaluations), key)
    for title, charts in curves.GROUPS.items():
        if ratios is None and title in curves.REPLAY_GROUPS:
            continue
        cards: list[Callable[[], None]] = [partial(_card, chart, series, key) for chart in charts]
        if title == curves.BUFFER_GROUP:
            cards.insert(0, lambda: buffer_area.show(series, f"{key}-buffer-area"))
        elif title == curves.RATIO_GROUP and ratios is not None:
            cards.append(lambda: ratio_bands.show(ratios, f"{key}-ratio-bands"))
        _group(title, cards)


def _card(chart: Chart, series: Series, key: str) -> None:
    curves.card(chart, curves.figure_of(chart, series), key)


def _group(title: str, cards: Sequence[Callable[[], None]]) -> None:
    st.subheader(title, anchor=False)
    columns = st.columns(2, gap="small")
    for index, card in enumerate(cards):
        with columns[index % 2]:
            card()
