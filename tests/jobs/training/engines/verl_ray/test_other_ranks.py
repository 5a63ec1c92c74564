"""On other numbers of GPUs, with an output matrix of its own as the paper's 7B and 8B models have it."""

import pytest

from exgrpo_core.engine import RolloutRequest
from exgrpo_core.errors import DamagedStateError
from exgrpo_core.methods.loading import build_objective
from exgrpo_core.policy_optimization.mixed_batch import MiniBatch
from tests.jobs.training.engines.contract import stored, training_rows
from tests.jobs.training.engines.embedded.engines import CONFIG, make_engine, make_questions
from tests.jobs.training.engines.paired_engines import check_parity
from tests.jobs.training.engines.verl_ray.engines import open_engine

pytestmark = [pytest.mark.verl, pytest.mark.slow, pytest.mark.timeout(900)]

ARCHITECTURE = "qwen2_untied"
OBJECTIVE = build_objective(CONFIG, is_replay_open=True)


def update_and_score(engine):
    groups = make_engine().rollout([RolloutRequest(question, 2) for question in make_questions()[:2]])
    rows = training_rows(groups, [1.0, -1.0, 0.5, -0.5])
    norm = engine.update([MiniBatch(rows, 0)], OBJECTIVE)["optim/gradient_norm"]
    return norm, [values.tolist() for values in engine.entropies(*stored(groups)).log_probs]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """A new engine on one rank, the state that two ranks saved, and what these computed after it."""
    folder = tmp_path_factory.mktemp("ranks")
    with open_engine(folder / "two", 2, architecture=ARCHITECTURE, has_rollouts=False) as engine:
        check_parity(make_engine(ARCHITECTURE), engine, OBJECTIVE)
        engine.save(folder / "saved")
        expected = update_and_score(engine)
    with open_engine(folder / "one", 1, architecture=ARCHITECTURE, has_rollouts=False) as engine:
        yield engine, folder / "saved", expected


def test_scores_and_the_gradient_of_several_micro_batches_are_those_of_the_embedded_engine(ranks):
    check_parity(make_engine(ARCHITECTURE), ranks[0], OBJECTIVE)


def test_weights_optimizer_and_learning_rate_of_two_ranks_continue_on_one(ranks):
    engine, saved, (norm, expected) = ranks
    engine.restore(saved)
    got_norm, got = update_and_score(engine)
    assert got_norm == pytest.approx(norm, rel=1e-4)
    for values, wanted in zip(got, expected, strict=True):
        assert values == pytest.approx(wanted, abs=1e-4)


def test_no_rank_reads_what_has_changed(ranks):
    engine, saved, _ = ranks
    file = saved / "workers/optim_world_size_2_rank_1.pt"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(DamagedStateError) as error:
        engine.restore(saved)
    assert file.name in str(error.value)
