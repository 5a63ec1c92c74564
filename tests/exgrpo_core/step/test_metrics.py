import time

import numpy as np
import pytest

from exgrpo_core.policy_optimization.mixed_batch import MiniBatch
from exgrpo_core.state import ExGRPOState
from exgrpo_core.step.metrics import PhaseClock, mini_batch_metrics, step_metrics
from exgrpo_core.step_report import Selection, StepReport
from tests.exgrpo_core.builders import group, question, replay, small_config, trajectory

pytestmark = pytest.mark.slow

CONFIG = small_config()


@pytest.fixture
def metrics_of(tmp_path):
    state = ExGRPOState.create(tmp_path, [question(index) for index in range(8)], CONFIG)

    def metrics(groups, selections=(), drawn=()):
        report = StepReport(
            5, is_replay_open=True, groups=groups, selections=list(selections), drawn_questions={*drawn}
        )
        return step_metrics(state, CONFIG, report)

    yield metrics
    state.replay_buffer.close()


def selection(index, entropies, chosen):
    numbers = np.arange(len(entropies), dtype=np.int64)
    values = np.asarray(entropies, dtype=np.float32)
    return Selection(index, 1, numbers, numbers, numbers + 3, values, 2 * values, values, (chosen,))


def test_rejected_entropy_is_the_mean_of_the_candidates_that_were_not_chosen(metrics_of):
    groups = [group(0, [1.0, 0.0]), group(1, [0.0, 0.0])]
    metrics = metrics_of(groups, [selection(0, [1.0, 2.0, 6.0], chosen=1), selection(1, [4.0], chosen=0)])
    assert metrics["replay/entropy_rejected"] == pytest.approx(3.5)
    assert metrics["replay/entropy_chosen"] == pytest.approx(3.0)
    assert metrics["replay/nll_chosen"] == pytest.approx(6.0)


def test_no_candidate_is_rejected_where_each_question_has_one(metrics_of):
    metrics = metrics_of([group(0, [1.0]), group(1, [0.0])], [selection(0, [1.0], 0), selection(1, [4.0], 0)])
    assert "replay/entropy_rejected" not in metrics


def test_pass_at_k_counts_groups_with_one_correct_trajectory_the_replayed_one_included(metrics_of):
    groups = [
        group(0, [0.0, 1.0, 0.0]), group(1, [0.0, 0.0, 0.0]), group(2, [0.0, 0.0], replay(2, [9], [-1.0], [-1.0])),
        group(3, [0.0, 0.0, 0.0]),
    ]  # fmt: skip
    metrics = metrics_of(groups)
    assert metrics["reward/pass_at_k"] == 0.5
    assert metrics["reward/pass_at_1"] == pytest.approx(1 / 11)


def test_pass_at_1_is_told_apart_by_where_the_questions_come_from(metrics_of):
    groups = [group(0, [1.0, 0.0, 0.0, 0.0]), group(2, [1.0, 1.0, 0.0], replay(2, [9], [-1.0], [-1.0]))]
    metrics = metrics_of(groups)
    assert metrics["reward/pass_at_1_fresh"] == 0.25
    assert metrics["reward/pass_at_1_replayed"] == pytest.approx(2 / 3)
    assert "reward/pass_at_1_replayed" not in metrics_of(groups[:1])


def test_a_drawn_question_that_is_only_rolled_out_again_fills_its_slot_and_is_no_fresh_one(metrics_of):
    groups = [group(0, [1.0, 0.0, 0.0, 0.0]), group(1, [1.0, 1.0, 1.0, 0.0]), group(2, [0.0, 0.0, 1.0, 1.0])]
    # rho B = 4; question 6 was drawn too, and its rollouts failed.
    metrics = metrics_of(groups, drawn=(1, 2, 6))
    assert metrics["replay/shortfall"] == 2.0
    assert metrics["reward/pass_at_1_fresh"] == 0.25
    assert metrics["reward/pass_at_1_replayed"] == 5 / 8
    assert metrics["replay/num_replayed"] == metrics["replay/share"] == 0.0


def test_mini_batches_report_the_mean_and_the_fewest_questions_that_are_left():
    metrics = mini_batch_metrics([MiniBatch([], 3), MiniBatch([], 6)])
    assert metrics == {"batch/questions_left": 4.5, "batch/questions_left_min": 3.0}


def test_seconds_of_a_step_are_those_of_its_phases_and_the_rest():
    began_at, clock = time.perf_counter(), PhaseClock()
    with clock.phase("rollout"):
        time.sleep(0.002)
    seconds = clock.seconds()
    assert 0.002 <= seconds["seconds/rollout"] <= seconds["seconds/step"] <= time.perf_counter() - began_at
    assert seconds["seconds/rollout"] + seconds["seconds/other"] == pytest.approx(seconds["seconds/step"])


def test_questions_ever_solved_are_those_of_buffer_and_retired_set(tmp_path):
    state = ExGRPOState.create(tmp_path, [question(index) for index in range(8)], CONFIG)
    state.replay_buffer.insert([trajectory(3, [5, 6], 1.0, trajectory_id=0)])
    state.retired_set.add(4)
    metrics = step_metrics(
        state, CONFIG, StepReport(step=1, is_replay_open=True, groups=[group(0, [1.0, 0.0, 0.0, 0.0])])
    )
    state.replay_buffer.close()
    assert metrics["buffer/num_in_data"] == 8
    assert metrics["buffer/ever_solved_share"] == 0.25
    assert metrics["buffer/file_bytes"] == 2 * 8 + 48
    assert metrics["buffer/memory_bytes"] > 8 * 8
