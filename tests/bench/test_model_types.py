"""The table of model types in docs/model-types.md, against what is found."""

import logging
import warnings

import pytest

from bench.model_types import OUTCOMES, TYPES, WRONG, read_table, row

_, ROWS = read_table()
SAMPLE = ("gpt2", "mamba", "phi3", "qwen3_5")
"""The others are slow together."""


@pytest.fixture(autouse=True)
def quiet():
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    logging.disable(before)


def test_the_table_has_known_types_and_outcomes_and_none_is_trained_wrongly():
    assert set(SAMPLE) <= ROWS.keys() <= set(TYPES)
    outcomes = {line.split("|")[2].strip() for line in ROWS.values()}
    assert outcomes <= set(OUTCOMES) - {WRONG}
    assert all(line.split("|")[3].strip() for line in ROWS.values())


@pytest.mark.parametrize(
    "name", [name if name in SAMPLE else pytest.param(name, marks=pytest.mark.slow) for name in ROWS]
)
def test_a_types_row_is_what_is_found(name):
    assert row(name) == ROWS[name]
