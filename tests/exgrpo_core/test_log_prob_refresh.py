import numpy as np
import pytest

from exgrpo_core.config import LogProbRefresh
from exgrpo_core.types import Experience, Trajectory
from tests.exgrpo_core.builders import small_config
from tests.exgrpo_core.toy_engine import ToyEngine
from tests.exgrpo_core.toy_runs import MEDIUM_RATES, NUM_QUESTIONS, new_state, run


def stored_by_id(state):
    buffer = state.replay_buffer
    rows = np.concatenate([buffer.rows_of(int(index)) for index in range(NUM_QUESTIONS)])
    return {item.trajectory_id: item for item in buffer.experiences(rows)}


@pytest.mark.parametrize("refresh", [LogProbRefresh.NEVER, LogProbRefresh.ON_REPLAY])
def test_replayed_trajectories_get_the_log_probs_before_the_update_where_asked(tmp_path, refresh):
    config = small_config(refresh=refresh)
    state, engine, _ = run(tmp_path, config, 4)
    before = stored_by_id(state)
    (report,) = run(tmp_path, config, 1, state=state, engine=engine)[2]
    after = stored_by_id(state)
    replayed = [item.trajectory_ids[item.chosen[0]] for item in report.selections]
    kept = [number for number in replayed if number in after]
    assert kept
    for number, item in after.items():
        if number in kept and refresh is LogProbRefresh.ON_REPLAY:
            assert (item.rollout_step, item.row > before[number].row) == (5, True)
            np.testing.assert_allclose(item.behavior_log_probs, -0.01 * item.token_ids, rtol=1e-6)
        elif number in before:
            assert item.rollout_step == before[number].rollout_step < 5
            np.testing.assert_array_equal(item.behavior_log_probs, before[number].behavior_log_probs)
    expected = len(kept) if refresh is LogProbRefresh.ON_REPLAY else None
    assert report.metrics.get("experience/num_refreshed") == expected


def test_trajectories_from_a_file_are_not_refreshed(tmp_path):
    config = small_config(refresh=LogProbRefresh.ON_REPLAY, uses_external_experience=True)
    ids, log_probs = np.array([7, 8], dtype=np.int32), np.zeros(2, dtype=np.float32)
    external = {i: Experience(-1, -1 - i, i, 0, 1.0, ids, log_probs) for i in range(NUM_QUESTIONS)}
    state = new_state(tmp_path, config, external=external)
    _, engine, _ = run(tmp_path, config, 12, state=state)  # into the second epoch, whose fresh questions are stored
    engine.success_rates = [0.0] * NUM_QUESTIONS  # nothing new is stored, so the newest row is of a step before
    (report,) = run(tmp_path, config, 1, state=state, engine=engine)[2]
    replays = [replay for group in report.groups for replay in group.replays]
    own = [replay for replay in replays if not replay.is_external]
    assert 0 < len(own) < len(replays)
    assert report.metrics["experience/num_refreshed"] == len(own)


class RepetitiveEngine(ToyEngine):
    """Writes one of two tokens, with other log-probs in each step."""

    def _trajectory(self, question):
        token, is_correct = self.rng.integers(0, 2), self.rng.random() < self.success_rates[question.index]
        log_prob = np.float32([-0.001 * len(self.calls)])
        return Trajectory(question.index, np.array([token], dtype=np.int32), log_prob, float(is_correct))


def test_equal_trajectories_bring_their_log_probs_where_asked(tmp_path):
    steps = {}
    for refresh in (LogProbRefresh.NEVER, LogProbRefresh.ON_DUPLICATE):
        config = small_config(refresh=refresh, experience_ratio=0.25)
        state, _, _ = run(tmp_path / refresh, config, 20, engine=RepetitiveEngine(MEDIUM_RATES))
        steps[refresh] = {number: item.rollout_step for number, item in stored_by_id(state).items()}
    never, refreshed = steps.values()
    assert never.keys() == refreshed.keys()
    assert sum(refreshed[number] > never[number] for number in never) > 3
    assert all(refreshed[number] >= never[number] for number in never)
