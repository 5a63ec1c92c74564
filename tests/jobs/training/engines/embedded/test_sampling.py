import numpy as np
import pytest
import torch
from scipy import stats

from exgrpo.jobs.training.engines.embedded import sampling
from exgrpo.jobs.training.engines.embedded.sampling import Scoring, SharedSampling, entropies_of, score_targets
from tests.jobs.training.engines.embedded.prompts import sampler

pytestmark = pytest.mark.slow


@pytest.fixture(params=["whole", "blocks"], autouse=True)
def way(request, monkeypatch):
    """How tokens are found: in one running sum, or in blocks of four as those of a large vocabulary."""
    if request.param == "blocks":
        monkeypatch.setattr(sampling, "SMALL_VOCABULARY", 0)
        monkeypatch.setattr(sampling, "_BLOCK", 4)
        monkeypatch.setattr(sampling, "_PIECE", 30)


def draw(logits, temperature=1.0, seed=0):
    return sampler(temperature, seed).draw(logits, lambda hidden: hidden, logits.shape[-1])


def test_draws_follow_the_distribution_at_temperature():
    logits = torch.tensor([0.0, 1.0, 2.0, -1.0, 0.5])
    draws = draw(logits.expand(20_000, -1), temperature=0.5)
    counts = torch.bincount(draws.token_ids, minlength=5).numpy()
    expected = (logits / 0.5).softmax(-1).double().numpy()
    assert stats.chisquare(counts, 20_000 * expected / expected.sum()).pvalue > 1e-3


def test_an_impossible_token_is_never_drawn_and_adds_no_entropy():
    logits = torch.tensor([float("-inf"), 0.0, 0.0, float("-inf")])
    draws = draw(logits.expand(5_000, -1))
    assert set(draws.token_ids.tolist()) == {1, 2}
    torch.testing.assert_close(draws.entropies, torch.full((5_000,), float(np.log(2))))


@pytest.mark.parametrize("point", [0.0, 1.0])
def test_the_ends_of_the_unit_interval_fall_on_possible_tokens(point, monkeypatch):
    logits = torch.tensor([[float("-inf"), 0.0, 0.0]])
    monkeypatch.setattr(torch, "rand", lambda shape, **_: torch.full(shape, point))
    assert draw(logits).token_ids.tolist() == [1 if point == 0.0 else 2]


def test_a_large_vocabulary_is_scored_as_in_float64_and_drawn_as_often_as_it_should():
    size = 50_001
    logits = torch.zeros(1, size)
    logits[:, 40_000:] = -3.0
    shared = SharedSampling(torch.arange(20_000), num_ranks=20_000)
    draws = sampler().draw(logits, lambda hidden: hidden, size, shared)
    exact = logits.double().log_softmax(-1)
    torch.testing.assert_close(draws.entropies[0].double(), -(exact.exp() * exact).sum(), atol=1e-5, rtol=0.0)
    torch.testing.assert_close(draws.log_probs.double(), exact[0, draws.token_ids], atol=1e-5, rtol=0.0)
    tenths = np.bincount(draws.token_ids // 5_001, minlength=10)
    expected = np.bincount(np.arange(size) // 5_001, weights=exact[0].exp().numpy())
    assert stats.chisquare(tenths, 20_000 * expected).pvalue > 1e-3


def test_rows_that_share_a_distribution_draw_on_their_own():
    logits = torch.tensor([0.0, 1.0, 0.5, -1.0]).expand(5_000, -1)
    draws = sampler().draw(logits, lambda hidden: hidden, 4, SharedSampling(torch.arange(10_000), num_ranks=2))
    counts = np.zeros((4, 4))
    np.add.at(counts, tuple(draws.token_ids.view(5_000, 2).T.numpy()), 1)
    assert stats.chi2_contingency(counts).pvalue > 1e-3
    expected = 10_000 * logits[0].double().softmax(-1).numpy()
    assert stats.chisquare(counts.sum(axis=0) + counts.sum(axis=1), expected).pvalue > 1e-3


def test_a_row_finds_its_draw_in_its_own_distribution_also_in_chunks(monkeypatch):
    monkeypatch.setattr(sampling, "MAX_LOGITS", 9 * 4)
    logits = torch.randn(10, 9)
    draw_index = torch.tensor([29, 0, 14, 13])
    draws = sampler(0.7).draw(logits, lambda hidden: hidden, 9, SharedSampling(draw_index, num_ranks=3))
    log_probs = (logits / 0.7).log_softmax(-1)[[9, 0, 4, 4]]
    torch.testing.assert_close(draws.log_probs, log_probs.gather(-1, draws.token_ids[:, None])[:, 0])
    torch.testing.assert_close(draws.entropies, entropies_of(log_probs, log_probs.exp()))


def test_temperature_zero_tells_tokens_apart_that_rounding_merges():
    logits = torch.zeros(4, 50_000)
    logits[:, 100] = torch.nextafter(torch.tensor(1.0), torch.tensor(0.0))
    logits[:, 700] = 1.0
    assert draw(logits, temperature=0.0).token_ids.tolist() == [700] * 4


def test_temperature_zero_takes_the_likeliest_token_and_scores_it_at_one():
    logits = torch.randn(20, 6)
    draws = draw(logits, temperature=0.0)
    torch.testing.assert_close(draws.token_ids, logits.argmax(-1))
    torch.testing.assert_close(draws.log_probs, logits.log_softmax(-1).max(-1).values)


def test_scores_and_their_gradients_are_the_same_in_chunks(monkeypatch):
    hidden = torch.randn(23, 5, dtype=torch.float64)
    weight = torch.randn(11, 5, dtype=torch.float64)
    targets = torch.randint(0, 11, (23,))

    def run():
        leaf, head = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
        scores = score_targets(leaf, lambda rows: rows @ head.T, 11, targets, Scoring(0.8))
        (scores.log_probs.sum() + 0.3 * scores.entropies.square().sum()).backward()
        return scores.log_probs, scores.entropies, leaf.grad, head.grad

    whole = run()
    monkeypatch.setattr(sampling, "MAX_LOGITS", 11 * 4)
    for one, other in zip(run(), whole, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("has_entropies", [True, False])
def test_scores_and_their_gradients_are_those_of_autograd(has_entropies):
    hidden = torch.randn(23, 5, dtype=torch.float64)
    weight, targets = torch.randn(11, 5, dtype=torch.float64), torch.randint(0, 11, (23,))
    factors = torch.randn(2, 23, dtype=torch.float64)

    def gradient(score):
        leaf = hidden.clone().requires_grad_()
        log_probs, entropies = score(leaf @ weight.T)
        ((log_probs * factors[0]).sum() + (0.0 if entropies is None else (entropies * factors[1]).sum())).backward()
        return log_probs.detach(), leaf.grad

    def plainly(logits):
        log_probs = (logits / 0.8).log_softmax(-1)
        entropies = -(log_probs.exp() * log_probs).sum(-1) if has_entropies else None
        return log_probs.gather(-1, targets[:, None])[:, 0], entropies

    def ours(logits):
        scores = score_targets(logits, lambda rows: rows.clone(), 11, targets, Scoring(0.8, has_entropies))
        return scores.log_probs, scores.entropies

    torch.testing.assert_close(gradient(ours), gradient(plainly))


def test_scores_without_gradients_are_those_of_the_whole_however_few_logits_fit(monkeypatch):
    hidden, targets = torch.randn(23, 11), torch.randint(0, 11, (23,))
    sizes = []

    def head(rows):
        sizes.append(len(rows))
        return rows

    with torch.inference_mode():
        whole = score_targets(hidden, head, 11, targets, Scoring(0.8))
        monkeypatch.setattr(sampling, "CACHED_LOGITS", 11 * 4)
        parts = score_targets(hidden, head, 11, targets, Scoring(0.8))
    assert sizes == [23, 4, 4, 4, 4, 4, 3]
    torch.testing.assert_close(parts.log_probs, whole.log_probs)
    torch.testing.assert_close(parts.entropies, whole.entropies)
