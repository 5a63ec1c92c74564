"""Parts of the reward on the verl engine: added to what verl's reward function gave, in the run's process."""

import numpy as np
import pytest

from exgrpo_core.methods.loading import ALLOWED_CODE_VARIABLE
from jobs.runs.recording.event_reader import EventReader
from jobs.training.reward_parts import open_reward_parts
from tests.jobs.training.engines.embedded.engines import make_questions
from tests.jobs.training.engines.verl_ray.runs import new_run, work
from tests.jobs.training.test_reward_parts import ByOutcome

pytestmark = [pytest.mark.slow, pytest.mark.verl]
SHORTNESS = "tests.jobs.training.outside_rewards:shortness"


def test_each_rollout_gets_the_weighted_sum_of_verls_reward_and_the_parts():
    from exgrpo_core.verl_plugin.engine import Rollout
    from jobs.training.engines.verl_ray.engine import WorkbenchVerlEngine

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


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_run_is_rewarded_by_parts_and_a_users_code(tmp_path, monkeypatch):
    monkeypatch.setenv(ALLOWED_CODE_VARIABLE, "tests.jobs.training.outside_rewards")
    data = {"num_questions": 8, "num_held_out": 4, "max_operations": 3, "rewards": {"answer": 1.0, SHORTNESS: 2.0}}
    algorithm = {
        "batch_size": 4, "mini_batch_size": 2, "rollouts_per_question": 4, "max_prompt_tokens": 64,
        "max_response_tokens": 48, "experience_ratio": 0.0, "reward_kind": "continuous", "start_pass_rate": None,
    }  # fmt: skip
    run = new_run(tmp_path, data=data, algorithm=algorithm, num_steps=1, checkpoint_interval=1)
    assert work(run) == "finished"
    (step,) = (event for event in EventReader(run).read().events if event["kind"] == "step")
    metrics = step["metrics"]
    assert 0.0 < metrics["reward/code_1"] <= 1.0
    assert metrics["reward/failed"] == 0.0
    assert metrics["reward/answer"] <= 1.0
    lengths = [row["extra"][f"reward/{SHORTNESS}"] for row in step["trajectories"]]
    assert np.mean(lengths) == pytest.approx(metrics["reward/code_1"])
