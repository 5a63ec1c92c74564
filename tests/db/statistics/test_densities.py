import numpy as np
import pytest

from db.statistics.densities import MIN_SAMPLES, densities


def test_a_density_has_an_area_of_one_and_its_peak_where_the_samples_lie():
    rng = np.random.default_rng(0)
    samples = rng.normal(2.0, 0.2, 4_000)
    grid, curves = densities({"own": samples})
    assert np.trapezoid(curves["own"], grid) == pytest.approx(1.0, abs=0.025)
    assert grid[curves["own"].argmax()] == pytest.approx(2.0, abs=0.1)
    # The peak of a normal density of this width is 1 / (0.2 sqrt(2 pi)) = 1.995; smoothing lowers it a little.
    assert curves["own"].max() == pytest.approx(1.995, rel=0.08)


def test_what_lies_at_zero_is_not_smoothed_away_below_it():
    samples = np.abs(np.random.default_rng(1).normal(0.0, 0.1, 4_000))
    grid, curves = densities({"own": samples})
    assert grid[0] >= 0.0
    assert np.trapezoid(curves["own"], grid) == pytest.approx(1.0, abs=0.03)


def test_samples_share_a_grid_and_small_or_endless_ones_are_left_out():
    grid, curves = densities(
        {"few": [1.0] * (MIN_SAMPLES - 1), "equal": [0.5] * MIN_SAMPLES, "nan": [float("nan")] * 10}
    )
    assert list(curves) == ["equal"]
    assert grid.size == curves["equal"].size
    assert densities({"none": []})[1] == {}
    # Samples below zero, as an imported run may hold, are left out.
    grid, curves = densities({"below": [-1e30] * 10, "some": [-1e30, *[0.5] * MIN_SAMPLES]})
    assert list(curves) == ["some"]
    assert grid[-1] < 1.0
