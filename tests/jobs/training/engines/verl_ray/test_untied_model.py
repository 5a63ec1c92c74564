"""A model whose output matrix is not its embedding, as the paper's 7B and 8B models have it, on two ranks."""

import pytest

from exgrpo_core.methods.loading import build_objective
from tests.jobs.training.engines.embedded.engines import CONFIG, make_engine
from tests.jobs.training.engines.paired_engines import check_parity
from tests.jobs.training.engines.verl_ray.engines import open_engine

pytestmark = [pytest.mark.verl, pytest.mark.slow, pytest.mark.timeout(600)]

ARCHITECTURE = "qwen2_untied"


def test_scores_and_the_gradient_of_several_micro_batches_are_those_of_the_embedded_engine(tmp_path):
    with open_engine(tmp_path, 2, architecture=ARCHITECTURE, has_rollouts=False) as engine:
        check_parity(make_engine(ARCHITECTURE), engine, build_objective(CONFIG, is_replay_open=True))
