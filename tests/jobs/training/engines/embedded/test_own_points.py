import numpy as np
import pytest
import torch

from exgrpo.jobs.training.engines.embedded.sampling import SMALL_VOCABULARY, Sampler, SharedSampling


@pytest.mark.parametrize("vocabulary", [7, SMALL_VOCABULARY, SMALL_VOCABULARY + 1, 50_001])
def test_row_with_a_point_gets_the_token_at_that_point_of_its_cumulative_distribution(vocabulary):
    rng = np.random.default_rng(vocabulary)
    logits, points = rng.normal(size=(6, vocabulary)).astype(np.float32), rng.random(6)
    weights = np.exp(logits.astype(np.float64) / 0.7)
    expected = [
        int(np.searchsorted(row.cumsum() / row.sum(), point)) for row, point in zip(weights, points, strict=True)
    ]
    sampler = Sampler(0.7, torch.Generator(), torch.from_numpy(points)[:, None]).of_rows(slice(None), 0)
    found = sampler.draw(torch.from_numpy(logits.copy()), lambda hidden: hidden, vocabulary)
    assert found.token_ids.tolist() == expected
    # Rows 0 to 5 are draws of two distributions, of which one has an unused draw.
    shared = SharedSampling(torch.tensor([0, 1, 2, 4, 5, 6]), 4)
    both = sampler.draw(torch.from_numpy(logits[:2].copy()), lambda hidden: hidden, vocabulary, shared)
    of = [0, 0, 0, 1, 1, 1]
    expected = [
        int(np.searchsorted(weights[row].cumsum() / weights[row].sum(), point))
        for row, point in zip(of, points, strict=True)
    ]
    assert both.token_ids.tolist() == expected
