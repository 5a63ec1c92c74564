"""Numbers of parts: each has a range, what is outside is refused before a run, and what is inside runs."""

import dataclasses
import math

import numpy as np
import pytest

from exgrpo_core import ExGRPOState
from exgrpo_core.config import ExGRPOConfig
from exgrpo_core.errors import FieldError
from exgrpo_core.methods.loading import (
    ALLOWED_CODE_VARIABLE,
    KINDS,
    TRAJECTORIES,
    build_part,
    find_mistakes,
    find_part,
    names_of,
    part_numbers,
)
from exgrpo_core.methods.ranges import Range
from tests.exgrpo_core.builders import question, small_config
from tests.exgrpo_core.strategies.replay_methods import METHODS
from tests.exgrpo_core.toy_runs import run

SHARED = {field.name for field in dataclasses.fields(ExGRPOConfig)}


def own_numbers(setting, name):
    numbers = part_numbers(find_part(setting, name))
    return {number: expected for number, (expected, _) in numbers.items() if number not in SHARED}


NUMBERS = [
    (setting, name, number, expected)
    for setting in KINDS
    for name in names_of(setting)
    for number, expected in own_numbers(setting, name).items()
]


def with_its_partner(number):
    """Return the other end of a pair such as `least_rate` and `most_rate`, at which every value is in order."""
    ends = {"least_": ("most_", 1.0), "most_": ("least_", 0.0)}
    return {number.replace(end, other): value for end, (other, value) in ends.items() if number.startswith(end)}


def refused(setting, name, number, value):
    """Return the mistakes that name a number."""
    numbers = {number: value} | with_its_partner(number)
    config = dataclasses.replace(ExGRPOConfig(), **{setting: name, "strategy_settings": numbers})
    return [mistake for mistake in find_mistakes(config) if mistake.fields == (f"strategy_settings.{number}",)]


def inside_and_outside(expected):
    """Return values at the limits of a range that are allowed, and those next to them that are not."""
    step = 1.0 if expected.is_whole else 1e-9
    allowed = [expected.least, expected.most, expected.above + step, expected.below - step]
    not_allowed = [expected.least - step, expected.most + step, expected.above, expected.below]
    beyond = [math.nan, math.inf, -math.inf] + [2.5] * expected.is_whole
    return [value for value in allowed if math.isfinite(value)], [*filter(math.isfinite, not_allowed), *beyond]


def test_every_number_that_only_a_part_knows_has_a_range():
    assert len(NUMBERS) > 30
    assert [number for number in NUMBERS if number[-1] is None] == []


@pytest.mark.parametrize(("setting", "name", "number", "expected"), NUMBERS)
def test_the_limits_of_a_number_are_allowed_and_what_is_outside_is_refused_by_its_name(setting, name, number, expected):
    allowed, not_allowed = inside_and_outside(expected)
    assert [value for value in allowed if refused(setting, name, number, value)] == []
    for value in not_allowed:
        (mistake,) = refused(setting, name, number, value)
        assert mistake == f"strategy_settings.{number}: expected {expected}, got {value!r}."


@pytest.mark.parametrize(
    ("expected", "words", "inside", "outside"),
    [
        (Range(), "a finite number", [0, -1e300], [math.nan, math.inf, True, "1", None]),
        (Range(least=1, is_whole=True), "a whole number of at least 1", [1, 4.0], [0, 1.5]),
        (Range(least=0, most=1), "a number from 0 to 1", [0, 0.5, 1], [-0.1, 1.1]),
        (Range(above=0, below=1), "a number above 0 and below 1", [0.5], [0, 1]),
    ],
)
def test_a_range_says_in_words_which_numbers_are_in_it(expected, words, inside, outside):
    assert str(expected) == words
    assert [value in expected for value in inside] == [True] * len(inside)
    assert [value in expected for value in outside] == [False] * len(outside)


def test_a_number_of_a_method_of_ones_own_is_checked_before_the_first_step(monkeypatch, tmp_path):
    monkeypatch.setenv(ALLOWED_CODE_VARIABLE, "tests")
    name = "tests.exgrpo_core.methods.outside_rules:Shortest"
    config = small_config(trajectory_selection=name, strategy_settings={"least_tokens": -1.0})
    (mistake,) = find_mistakes(config)
    assert mistake == "strategy_settings.least_tokens: expected a number of at least 0, got -1.0."
    with pytest.raises(FieldError, match="least_tokens: expected a number of at least 0"):
        ExGRPOState.create(tmp_path, [question(i) for i in range(8)], config)
    assert build_part(TRAJECTORIES, small_config(trajectory_selection=name, strategy_settings={"least_tokens": 0.0}))


RUNS = [
    (name, number, value)
    for name, settings in METHODS.items()
    for setting in KINDS
    for number, expected in own_numbers(setting, settings.get(setting, getattr(ExGRPOConfig(), setting))).items()
    for value in (
        expected.least if math.isfinite(expected.least) else expected.above + 1e-12,
        min(expected.most, expected.below - 1e-12, 1e12),
    )
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "number", "value"), RUNS)
def test_a_run_works_with_the_least_and_the_largest_of_each_number(tmp_path, name, number, value):
    changes = METHODS[name]
    numbers = changes.get("strategy_settings", {}) | {number: value} | with_its_partner(number)
    config = small_config(**changes | {"strategy_settings": numbers})
    assert list(find_mistakes(config)) == []
    _, _, reports = run(tmp_path, config, 6, rates=list(np.linspace(0.0, 0.9, 40)))
    assert all(np.isfinite(list(report.metrics.values())).all() for report in reports)
