"""Numbers of seeds agree with the exact power of the paired t test (scipy) and with textbook values."""

import math

import pytest
from scipy import stats

from jobs.actions.studies.study_results import plan_seeds

pytestmark = pytest.mark.slow


def exact_power(num_seeds, effect, level):
    degrees = num_seeds - 1
    limit = stats.t.ppf(1 - level / 2, degrees)
    shift = effect * math.sqrt(num_seeds)
    return stats.nct.sf(limit, degrees, shift) + stats.nct.cdf(-limit, degrees, shift)


@pytest.mark.parametrize("effect", [0.4, 0.7, 1.0, 2.0])
@pytest.mark.parametrize("num_comparisons", [1, 9])
def test_the_number_is_within_a_seed_or_two_percent_of_the_exact_one(effect, num_comparisons):
    planned = plan_seeds(effect, 1.0, num_comparisons).num_seeds
    level = 0.05 / num_comparisons
    exact = next(n for n in range(2, 1000) if exact_power(n, effect, level) >= 0.8)
    assert abs(planned - exact) <= max(1, 0.02 * exact)
