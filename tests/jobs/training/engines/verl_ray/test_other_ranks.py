"""A run on verl continues on another number of GPUs, and no rank reads what has changed."""

import pytest

from exgrpo_core.engine import RolloutRequest
from exgrpo_core.errors import DamagedStateError
from exgrpo_core.methods.loading import build_objective
from exgrpo_core.policy_optimization.mixed_batch import MiniBatch
from tests.jobs.training.engines.contract import stored, training_rows
from tests.jobs.training.engines.embedded.engines import CONFIG, make_engine, make_questions
from tests.jobs.training.engines.verl_ray.engines import open_engine

pytestmark = [pytest.mark.verl, pytest.mark.slow, pytest.mark.timeout(600)]


def test_weights_optimizer_and_learning_rate_of_four_ranks_continue_on_two(tmp_path):
    questions = make_questions()[:2]
    groups = make_engine().rollout([RolloutRequest(question, 2) for question in questions])
    objective = build_objective(CONFIG, is_replay_open=True)

    def update_and_score(engine):
        rows = training_rows(groups, [1.0, -1.0, 0.5, -0.5])
        norm = engine.update([MiniBatch(rows, 0)], objective)["optim/gradient_norm"]
        return norm, [values.tolist() for values in engine.entropies(*stored(groups)).log_probs]

    (tmp_path / "four").mkdir()
    (tmp_path / "two").mkdir()
    with open_engine(tmp_path / "four", 4, has_rollouts=False) as engine:
        update_and_score(engine)
        engine.save(tmp_path / "saved")
        norm, expected = update_and_score(engine)
    with open_engine(tmp_path / "two", 2, has_rollouts=False) as engine:
        engine.restore(tmp_path / "saved")
        got_norm, got = update_and_score(engine)
        file = tmp_path / "saved/workers/optim_world_size_4_rank_3.pt"
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
        with pytest.raises(DamagedStateError) as error:
            engine.restore(tmp_path / "saved")
        assert file.name in str(error.value)
    assert got_norm == pytest.approx(norm, rel=1e-4)
    for values, wanted in zip(got, expected, strict=True):
        assert values == pytest.approx(wanted, abs=1e-4)
