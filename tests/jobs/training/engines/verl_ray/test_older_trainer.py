import dataclasses

import pytest

from exgrpo_core.algorithm import exgrpo_step
from exgrpo_core.errors import EngineError
from exgrpo_core.methods.loading import build_objective
from exgrpo_core.state import ExGRPOState
from tests.jobs.training.engines.embedded.engines import CONFIG, make_engine, make_questions
from tests.jobs.training.engines.paired_engines import check_parity
from tests.jobs.training.engines.verl_ray.engines import open_engine

pytestmark = [pytest.mark.verl, pytest.mark.slow, pytest.mark.timeout(900)]

OLDER = ["trainer.use_v1=False"]
CHANGES = {"batch_size": 4, "mini_batch_size": 2, "kl_coefficient": 0.01}


def test_it_scores_and_learns_as_the_embedded_engine_and_a_resumed_run_does_the_same_steps(tmp_path):
    with open_engine(tmp_path, 1, overrides=OLDER, **CHANGES) as engine:
        from verl.trainer.ppo.ray_trainer import RayPPOTrainer

        assert isinstance(engine.trainer, RayPPOTrainer)
        engine.save(tmp_path / "first")
        once = three_steps(engine, tmp_path / "once")
        engine.restore(tmp_path / "first")
        again = three_steps(engine, tmp_path / "again")
        (responses,) = engine.generate_for_evaluation(make_questions()[:1], 2, 0.6, 8, seed=1)
        engine.restore(tmp_path / "first")
        objective = build_objective(dataclasses.replace(CONFIG, **CHANGES), is_replay_open=True)
        check_parity(make_engine(**CHANGES), engine, objective)
    assert sum(metrics["replay/num_replayed"] for metrics in once) > 0
    assert once[-1]["loss/kl"] > 0
    assert again == once
    assert len(responses) == 2


def three_steps(engine, folder):
    config = dataclasses.replace(CONFIG, **CHANGES)
    state = ExGRPOState.create(folder, make_questions(8), config)
    reports = [exgrpo_step(state, engine, config) for _ in range(3)]
    assert all(report.metrics["generator/log_prob_gap"] < 1e-4 for report in reports)
    # Seconds differ, and the sampler's log-probs depend on which requests it answers together.
    left_out = ("seconds", "generator/log_prob_gap")
    return [
        {name: value for name, value in report.metrics.items() if not name.startswith(left_out)} for report in reports
    ]


def test_servers_on_gpus_of_their_own_are_refused_with_a_remedy(tmp_path):
    ahead = {"num_generating": 1, "rollouts_ahead": True, "sampler_correction": "truncate"}
    with (
        pytest.raises(EngineError, match=r"rollout\.nnodes: expected 0 .*, got 1, .* set trainer\.use_v1=True"),
        open_engine(tmp_path, 1, overrides=OLDER, **ahead),
    ):
        pass
