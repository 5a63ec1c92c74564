"""Scores, loss and gradient of verl's workers beside those of the embedded engine, on the same rows."""

from pathlib import Path

import numpy as np
import pytest
import torch

from exgrpo_core.engine import RolloutRequest
from exgrpo_core.policy_optimization.mixed_batch import MiniBatch
from tests.jobs.engines.contract import stored, training_rows
from tests.jobs.engines.embedded.engines import make_engine, make_questions

BETA1 = 0.9
TOLERANCE = 1e-5


def check_scores(engine, architecture: str = "qwen2_tied") -> None:
    """Fail unless verl's engine scores as a new embedded engine does."""
    other = make_engine(architecture)
    candidates = stored(other.rollout([RolloutRequest(question, 3) for question in make_questions()]))
    mine, theirs = engine.entropies(*candidates), other.entropies(*candidates)
    for one, two in zip((*mine.log_probs, *mine.entropies), (*theirs.log_probs, *theirs.entropies), strict=True):
        np.testing.assert_allclose(one, two, rtol=TOLERANCE, atol=TOLERANCE)


def check_update(engine, objective, folder: Path, architecture: str = "qwen2_tied") -> None:
    """Fail unless the first step of verl's engine has the metrics and gradient of a new embedded engine's."""
    mini_batch = make_mini_batch()
    metrics, gradient = verl_gradient(engine, mini_batch, objective, folder)
    expected_metrics, expected = embedded_gradient(mini_batch, objective, architecture)
    assert gradient.keys() == expected.keys()
    assert all(torch.allclose(gradient[key], expected[key], atol=TOLERANCE) for key in expected)
    for key in expected_metrics.keys() - {"generator/log_prob_gap", "generator/log_prob_gap_max"}:
        assert metrics[key] == pytest.approx(expected_metrics[key], rel=TOLERANCE, abs=TOLERANCE), key


def make_mini_batch() -> MiniBatch:
    """Fresh and replayed rows of varied length; replayed ones were likelier under the policy that wrote them."""
    questions = make_questions()
    groups = make_engine(seed=1).rollout([RolloutRequest(question, 4) for question in questions[:6]])
    fresh = training_rows(groups[:3], [1.0, -0.5, -0.75, 0.25] * 3)
    replayed = training_rows(groups[3:], [0.75, -0.5, -0.25, 0.0] * 3, is_replayed=True)
    rng = np.random.default_rng(0)
    for row in (*fresh, *replayed):
        row.behavior_log_probs[:] -= rng.normal(0.3 * row.is_replayed, 0.2, row.token_ids.size).astype(np.float32)
    return MiniBatch(fresh + replayed, 3)


def embedded_gradient(mini_batch, objective, architecture: str) -> tuple[dict[str, float], dict[str, torch.Tensor]]:
    """Return metrics and the clipped gradient of one step of a new embedded engine."""
    engine = make_engine(architecture)
    metrics = engine.update([mini_batch], objective)
    tensors = engine._optimizer.state_tensors()
    moments = {name: value for name, value in tensors.items() if name.endswith("/exp_avg")}
    return metrics, {name.removesuffix("/exp_avg"): value / (1.0 - BETA1) for name, value in moments.items()}


def verl_gradient(engine, mini_batch, objective, folder: Path) -> tuple[dict[str, float], dict[str, torch.Tensor]]:
    """Return metrics and the clipped gradient of one step of a new verl engine, from its workers' checkpoint."""
    metrics = engine.update([mini_batch], objective)
    engine.save(folder)
    shards = []
    for path in sorted((folder / "workers").glob("optim_world_size_*")):
        names = list(torch.load(path.with_name(path.name.replace("optim", "model")), weights_only=False))
        state = torch.load(path, weights_only=False)["state"]
        # A tied output layer has a name of its own but no parameter.
        shards.append([(name, state[i]["exp_avg"].to_local()) for i, name in enumerate(names) if i in state])
    whole = {named[0][0]: torch.cat([value for _, value in named]) for named in zip(*shards, strict=True)}
    return metrics, {name: value / (1.0 - BETA1) for name, value in whole.items()}
