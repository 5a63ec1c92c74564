import pytest

from exgrpo.app.components.chains_of_thought import thought_charts
from exgrpo.db.rows.chains_of_thought import EntropyPoint, ShareLine

pytestmark = pytest.mark.slow


def test_shares_are_means_of_the_last_steps_and_gaps_are_left_out():
    lines = [
        ShareLine(1, 0.2, None, None, None), ShareLine(2, 0.4, 1.0, None, None), ShareLine(4, 0.6, 0.0, 0.5, 1.0)
    ]  # fmt: skip
    curves = {trace.name: trace for trace in thought_charts.shares(lines).data}
    assert (list(curves["rollouts"].x), list(curves["replays"].y)) == ([1, 2, 4], [1.0])
    means = {trace.name: trace for trace in thought_charts.shares(lines, window=3).data}
    # Step 4 averages steps 2 to 4.
    assert list(means["rollouts"].y) == pytest.approx([0.2, 0.3, 0.5])
    assert thought_charts.shares([]) is None


def test_densities_reach_above_nearly_all_values_of_a_small_group():
    entropies = {True: [number / 10_000 for number in range(990)], False: [0.2 + number / 100 for number in range(10)]}
    points = [
        EntropyPoint(None, False, is_valid, entropy, 0.0) for is_valid in entropies for entropy in entropies[is_valid]
    ]
    figure = thought_charts.densities_of(points, thought_charts.VALIDITY, "mean_entropy")
    small = next(trace for trace in figure.data if trace.name == "not valid (10)")
    assert sum(small.y) * (small.x[1] - small.x[0]) == pytest.approx(0.9)
