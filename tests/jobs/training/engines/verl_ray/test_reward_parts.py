"""Parts of the reward on the verl engine: added to what verl's reward function gave, in the run's process."""

import numpy as np
import pytest

from exgrpo.jobs.training.reward_parts import open_reward_parts
from tests.jobs.training.engines.embedded.engines import make_questions
from tests.jobs.training.test_reward_parts import ByOutcome

pytestmark = [pytest.mark.slow, pytest.mark.verl]


def test_each_rollout_gets_the_weighted_sum_of_verls_reward_and_the_parts():
    from exgrpo.jobs.training.engines.verl_ray.engine import WorkbenchVerlEngine
    from exgrpo_core.verl_plugin.engine import Rollout

    engine = WorkbenchVerlEngine.__new__(WorkbenchVerlEngine)
    empty = np.empty(0, dtype=np.float32)
    rollouts = [
        Rollout(empty.astype(np.int32), empty, reward, text, False, {"outcome": outcome})
        for reward, text, outcome in ((1.0, "a", "correct"), (0.0, "b", "wrong"), (0.0, "c", "unparsed"))
    ]
    questions = make_questions()[:1] * 3
    assert engine.rewards(questions, rollouts) == [1.0, 0.0, 0.0]
    with open_reward_parts(ByOutcome(), {"answer": 2.0, "format": 0.5}) as parts:
        engine.weigh = parts.weigh
        assert engine.rewards(questions, rollouts) == [2.5, 0.5, 0.0]
        assert rollouts[1].verdict["reward_parts"] == {"answer": 0.0, "format": 1.0}
        assert parts.take_metrics() == {"reward/answer": 1 / 3, "reward/format": 2 / 3}
