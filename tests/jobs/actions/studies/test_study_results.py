import math

import numpy as np
import pytest
from scipy import stats

from exgrpo.jobs.actions.studies.definition import Cell
from exgrpo.jobs.actions.studies.study_report import interval_bars
from exgrpo.jobs.actions.studies.study_results import CellResult, SeedResult, plan_seeds

pytestmark = pytest.mark.slow


def exact_power(num_seeds, effect, level):
    degrees = num_seeds - 1
    limit = stats.t.ppf(1 - level / 2, degrees)
    shift = effect * math.sqrt(num_seeds)
    return stats.nct.sf(limit, degrees, shift) + stats.nct.cdf(-limit, degrees, shift)


def cell(*scores, name="Held-out Avg@8 (%)", interval=(60.0, 72.0)):
    seeds = [SeedResult(seed, None, {}, {name: score}, {}, interval) for seed, score in enumerate(scores)]
    return CellResult(Cell(name="a", chains={}), tuple(seeds))


def test_bars_are_of_seeds_within_0_and_100_and_one_seed_has_that_of_its_questions():
    name = "Held-out Avg@8 (%)"
    # By hand: 12.706 times 2.8284 / sqrt(2) is 25.4 points on each side of 90.
    assert cell(88.0, 92.0).ends(name) == pytest.approx((64.588, 100.0), abs=1e-3)
    assert cell(66.0).ends(name) == (60.0, 72.0)
    seconds = "Avg. Step (s)"
    assert np.isnan([*cell(3.0, name=seconds).ends(seconds), *cell(5.0, 5.0).ends(name)]).all()
    assert cell(1.0, 3.0, name=seconds).ends(seconds) == pytest.approx((-10.706, 14.706), abs=1e-3)
    bars = interval_bars([cell(66.0), cell(88.0, 92.0), cell(5.0, 5.0)], name)
    assert bars["array"] == [6.0, pytest.approx(10.0), None]
    assert bars["arrayminus"] == [6.0, pytest.approx(25.412, abs=1e-3), None]


@pytest.mark.parametrize("effect", [0.7, 2.0])
@pytest.mark.parametrize("num_comparisons", [1, 9])
def test_the_number_is_within_a_seed_or_two_percent_of_the_exact_one(effect, num_comparisons):
    planned = plan_seeds(effect, 1.0, num_comparisons).num_seeds
    level = 0.05 / num_comparisons
    exact = next(n for n in range(2, 1000) if exact_power(n, effect, level) >= 0.8)
    assert abs(planned - exact) <= max(1, 0.02 * exact)
