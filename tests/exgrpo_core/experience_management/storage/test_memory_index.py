import numpy as np
import pytest

from exgrpo_core.experience_management.storage.memory_index import QuestionHistory


def test_spreads_of_rewards_are_the_deviations_of_each_latest_group():
    history = QuestionHistory(4)
    groups = {2: [0.0, 1.0, 1.0, 0.5], 0: [0.25, 0.75], 3: [1.0, 1.0, 1.0]}
    history.record_rewards(list(groups), [np.array(rewards, np.float32) for rewards in groups.values()])
    for index, rewards in groups.items():
        mean = np.mean(rewards)
        assert history.reward_spreads[index].tolist() == pytest.approx(
            [np.std(rewards, ddof=1), np.mean(np.abs(rewards - mean))]
        )
    assert not history.reward_spreads[1].any()
