"""The table of model types in docs/model-types.md, against what is found."""

import logging
import warnings

import pytest

from bench.model_types import OUTCOMES, TYPES, WRONG, read_table, row

_, ROWS = read_table()
SAMPLE = ("gpt2", "mamba", "phi3", "qwen3_5")
SLOW = (
    "bart", "deepseek_v3", "gemma3", "glm4", "gpt_oss", "granite", "internvl", "jamba", "kosmos-2.5", "lfm2", "llama",
    "llava", "mistral4", "mixtral", "olmo2", "pp_formulanet", "qwen2_5_vl", "qwen3", "qwen3_moe", "rwkv", "smollm3",
    "youtu",
)  # fmt: skip
"""Further kinds of outcomes; all types together take very long."""


@pytest.fixture(autouse=True)
def quiet():
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    logging.disable(before)


def test_the_table_has_known_types_and_outcomes_and_none_is_trained_wrongly():
    assert ROWS.keys() == set(TYPES)
    outcomes = {line.split("|")[2].strip() for line in ROWS.values()}
    assert outcomes <= set(OUTCOMES) - {WRONG}
    assert all(line.split("|")[3].strip() for line in ROWS.values())


@pytest.mark.parametrize("name", [*SAMPLE, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_a_types_row_is_what_is_found(name):
    assert row(name) == ROWS[name]
